//! Marks in a real Redis: which fences are admitted, and what is written then.

// Helpers outside `#[test]` functions unwrap as well: their panic is the failure message.

use std::sync::Arc;
use std::time::Duration;

use crate::fences::{
    FenceSource, HOSTILE_NAMES, Model, assert_never_goes_back, fence, steps, verdict_as_result,
};
use crate::redis_server::Server;
use leasehold_core::Fence;
use leasehold_fence::redis::{FRAGMENT, Write, mark_key};
use leasehold_fence::{Marks, Verdict};
use proptest::test_runner::{Config, TestRunner};

#[tokio::test]
async fn older_is_refused_equal_and_newer_are_admitted() {
    let server = Server::start().await;
    let kit = server.kit().await;
    for number in [5, 5, 9] {
        assert!(kit.admit("job:42", fence(number)).await.unwrap().is_admitted(), "{number}");
    }
    let refused = kit.admit("job:42", fence(8)).await.unwrap();
    assert_eq!(verdict_as_result(refused, "job:42", fence(8)), Err(fence(9)));
    assert!(kit.admit("job:43", fence(1)).await.unwrap().is_admitted(), "another resource has its own mark");
    assert_eq!(kit.newest("job:42").await.unwrap(), Some(fence(9)));
    assert_eq!(kit.newest("job:44").await.unwrap(), None);
    assert!(kit.forget("job:42").await.unwrap() && !kit.forget("job:42").await.unwrap());
    assert!(kit.admit("job:42", fence(8)).await.unwrap().is_admitted());
}

/// Hazard R19: Lua numbers could lose the last digit of the largest fences,
/// and as strings "10" < "9".
#[tokio::test]
async fn every_digit_counts() {
    let server = Server::start().await;
    let kit = server.kit().await;
    let top = Fence::MAX.get();
    for (at, (newest, older)) in
        [(10, 9), (100, 99), (top, top - 1), (1 << 52, (1 << 52) - 1)].into_iter().enumerate()
    {
        let resource = format!("digits:{at}");
        assert!(kit.admit(&resource, fence(newest)).await.unwrap().is_admitted());
        let refused = kit.admit(&resource, fence(older)).await.unwrap();
        assert_eq!(verdict_as_result(refused, &resource, fence(older)), Err(fence(newest)));
        assert!(kit.admit(&resource, fence(newest)).await.unwrap().is_admitted());
    }
    let stored: String = server.run_command(&format!("GET {}", mark_key("digits:2").unwrap())).await;
    assert_eq!(stored, top.to_string());
}

#[tokio::test]
async fn a_stale_write_changes_nothing() {
    let server = Server::start().await;
    let kit = server.kit().await;
    let hour = Some(Duration::from_secs(3600));
    assert!(kit.set_fenced("report", "new", fence(9), hour).await.unwrap().is_admitted());
    let refused = kit.set_fenced("report", "old", fence(8), None).await.unwrap();
    assert_eq!(verdict_as_result(refused, "report", fence(8)), Err(fence(9)));
    assert_eq!(server.run_command::<String>("GET report").await, "new");
    assert!(server.run_command::<i64>("PTTL report").await > 0, "the refused write took the expiry away");

    // The data may expire, but its mark must not.
    let mark = mark_key("report").unwrap();
    assert_eq!(server.run_command::<i64>(&format!("PTTL {mark}")).await, -1);
    assert_eq!(server.run_command::<i64>("DEL report").await, 1);
    assert!(!kit.set_fenced("report", "old", fence(8), None).await.unwrap().is_admitted());
    // Even if an operator gives the mark an expiry, the next admission removes it.
    assert_eq!(server.run_command::<i64>(&format!("PEXPIRE {mark} 3600000")).await, 1);
    assert!(kit.admit("report", fence(9)).await.unwrap().is_admitted());
    assert_eq!(server.run_command::<i64>(&format!("PTTL {mark}")).await, -1);
}

#[tokio::test]
async fn all_writes_under_one_mark_or_none() {
    let server = Server::start().await;
    let kit = server.kit().await;
    assert_eq!(server.run_command::<String>("SET gone soon").await, "OK");
    let binary = [0u8, 255, 13, 10];
    let writes = [
        Write::set("state", "done"),
        Write::delete("gone"),
        Write::set("bytes", binary).expires(Duration::from_secs(3600)),
    ];
    assert!(kit.apply("job:42", fence(9), &writes).await.unwrap().is_admitted());
    assert_eq!(server.run_command::<String>("GET state").await, "done");
    assert_eq!(server.run_command::<i64>("EXISTS gone").await, 0);
    assert_eq!(server.run_command::<Vec<u8>>("GET bytes").await, binary);
    assert!(server.run_command::<i64>("PTTL bytes").await > 0);
    assert_eq!(server.run_command::<i64>("PTTL state").await, -1);

    // A key that the newer holder has not touched is protected too, because the mark is the lock's.
    let late = [Write::set("untouched", "late"), Write::delete("state")];
    assert!(!kit.apply("job:42", fence(8), &late).await.unwrap().is_admitted());
    assert_eq!(server.run_command::<i64>("EXISTS untouched").await, 0);
    assert_eq!(server.run_command::<String>("GET state").await, "done");
}

#[tokio::test]
async fn hostile_names_stay_data() {
    let server = Server::start().await;
    let kit = server.kit().await;
    let hostile = HOSTILE_NAMES.iter().copied().chain([
        "a key with spaces",
        "{tag}:k",
        "k",
        "{k}",
        "a{b",
        "\r\nFLUSHALL\r\n",
    ]);
    for (at, text) in hostile.clone().enumerate() {
        let number = 100 - at as u64;
        assert!(kit.set_fenced(text, text, fence(number), None).await.unwrap().is_admitted(), "{text}");
    }
    for text in hostile.clone() {
        assert!(!kit.set_fenced(text, "late", fence(1), None).await.unwrap().is_admitted(), "{text}");
    }
    assert_eq!(server.run_command::<usize>("DBSIZE").await, 2 * hostile.count());
}

/// The script appends to a list itself, so the list shows the order:
/// `FRAGMENT` in a user's own script.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_scripts_never_go_back() {
    let server = Server::start().await;
    let code = format!(
        "{FRAGMENT}{}",
        r"
        local verdict, newest = leasehold_admit(KEYS[1], ARGV[1])
        if verdict == 'admitted' then redis.call('RPUSH', KEYS[2], ARGV[1]) end
        return {verdict, newest}
    "
    );
    let (front, mut writers) = (Arc::new(FenceSource::default()), Vec::new());
    for seed in 0..8 {
        let (mut connection, front, code) = (server.connection().await, Arc::clone(&front), code.clone());
        writers.push(tokio::spawn(async move {
            let script = redis::Script::new(&code);
            for fence in front.offers(seed, 60) {
                let mark = mark_key("job:42").unwrap();
                let mut call = script.key(mark);
                call.key("log").arg(fence.to_string());
                let (verdict, newest): (String, u64) = call.invoke_async(&mut connection).await.unwrap();
                assert_eq!(verdict == "stale", newest > fence.get(), "{verdict}");
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_never_goes_back(&server.run_command::<Vec<u64>>("LRANGE log 0 -1").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_write_of_a_race_is_the_newest() {
    let server = Server::start().await;
    let (front, mut writers) = (Arc::new(FenceSource::default()), Vec::new());
    for seed in 0..8 {
        let (kit, front) = (server.kit().await, Arc::clone(&front));
        writers.push(tokio::spawn(async move {
            for fence in front.offers(seed, 60) {
                let both = [Write::set("one", fence.to_string()), Write::set("other", fence.to_string())];
                if let Verdict::Stale(stale) = kit.apply("job:42", fence, &both).await.unwrap() {
                    assert!(stale.newest > fence);
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let newest = Some(front.highest());
    assert_eq!(server.kit().await.newest("job:42").await.unwrap(), newest);
    for key in ["one", "other"] {
        assert_eq!(Some(fence(server.run_command(&format!("GET {key}")).await)), newest);
    }
}

/// Trap 30: the server loses its scripts between any two calls.
#[tokio::test]
async fn trap_30_lost_script_cache() {
    let server = Server::start().await;
    let kit = server.kit().await;
    for number in 1..5 {
        assert!(kit.set_fenced("k", "v", fence(number), None).await.unwrap().is_admitted());
        assert_eq!(server.run_command::<String>("SCRIPT FLUSH").await, "OK");
    }
    assert_eq!(kit.newest("k").await.unwrap(), Some(fence(4)));
}

#[tokio::test]
async fn a_foreign_value_at_the_mark_is_neither_admitted_nor_overwritten() {
    let server = Server::start().await;
    let kit = server.kit().await;
    let mark = mark_key("k").unwrap();
    for foreign in ["seven", "-1", "007", "1e3", "9007199254740992"] {
        assert_eq!(server.run_command::<String>(&format!("SET {mark} {foreign}")).await, "OK");
        let failure = kit.set_fenced("k", "v", fence(7), None).await.unwrap_err();
        assert!(!failure.unknown && failure.to_string().contains(foreign), "{failure}");
        assert!(kit.newest("k").await.is_err());
        assert_eq!(server.run_command::<String>(&format!("GET {mark}")).await, foreign);
        assert_eq!(server.run_command::<i64>("EXISTS k").await, 0);
    }
}

#[tokio::test]
async fn marks_for_middleware_are_the_same_marks() {
    let server = Server::start().await;
    let kit = server.kit().await;
    let job = crate::fences::name("job:42");
    assert!(Marks::admit(&kit, &job, fence(9)).await.unwrap().is_admitted());
    assert!(!kit.admit("job:42", fence(8)).await.unwrap().is_admitted());
}

#[test]
fn agrees_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    let kit = runtime.block_on(server.kit());
    let runs = std::cell::Cell::new(0);
    TestRunner::new(Config::with_cases(64))
        .run(&steps(), |steps| {
            // New resources for each case, because the server is shared.
            let run = runs.replace(runs.get() + 1);
            let mut model = Model::default();
            for step in &steps {
                let resource = format!("run:{run}:{}", step.resource);
                let verdict = runtime.block_on(kit.admit(&resource, step.fence)).unwrap();
                proptest::prop_assert_eq!(
                    verdict_as_result(verdict, &resource, step.fence),
                    model.admit(step, true)
                );
            }
            Ok(())
        })
        .unwrap();
}
