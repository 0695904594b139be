//! The faults that the seeds of a chaos run choose from.

use leasehold_core::testbed::TestbedInfo;
use leasehold_drill::chaos::Fault;

/// Seeds of the ledger refer to these positions. A store's own faults come after the network's.
#[test]
fn every_store_has_its_faults_in_the_order_of_the_seeds() {
    let common = "kill kill-all pause pause-all outage client-clock";
    let network = "reset black-hole late-requests lost-replies repeat latency slices limit-data";
    let expected = [
        format!("{common} vacuum checkpoint reader"),
        format!(
            "{common} {network} script-flush flush restart freeze connection-limit client-kill server-ahead \
             server-back"
        ),
    ];
    let names = |store: &TestbedInfo, fake_clocks| -> Vec<_> {
        Fault::possible_on(store, fake_clocks).into_iter().map(Fault::as_str).collect()
    };
    let stores: Vec<_> = leasehold::testbeds().iter().map(|store| store.info()).collect();
    assert_eq!(stores.iter().map(|store| names(store, true).join(" ")).collect::<Vec<_>>(), expected);
    for store in &stores {
        let mut all = names(store, true);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{}: a name is not unique", store.name);
        assert!(!names(store, false).iter().any(|name| name.contains("clock") || name.contains("server-")));
    }
}
