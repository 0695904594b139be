//! Fault injection for Leasehold: drills on real servers, checked against one set of promises.
//!
//! Every drill writes a *history*, one line for each thing that a client, the store or the drill's
//! director did. The checker reads that history alone. The simulator (`leasehold-sim`, development
//! only) writes the same histories, so a drill, a soak and a simulation are judged by the same rules.
//!
//! | module | contents | feature |
//! |---|---|---|
//! | [`history`] | the record format: writer, reader, and the observer that records a client's events | |
//! | [`oracle`] | the checker: turns a history into attempts and grants, and returns findings | |
//! | [`invariant`] | the numbered promises (I1, L2, …) that a history can show, one file each | |
//! | [`proxy`] | a TCP proxy that injects network faults: latency, resets, lost replies, repeated commands | |
//! | `fleet` | worker processes on a store under test: start, signal, kill, pause, external stores | `drills` |
//! | `scenario` | the named drills, each one fault with the promises that apply to it, and the verdict | `drills` |
//! | `chaos` | random faults chosen by seed: short drills in batches, and soaks of hours | `drills` |
//! | `plane` | the drill of the control plane: replicas under load, killed, stopped and restarted | `drills` |
//! | `hostile` | the drill of hostile clients: floods, silent connections and slow readers against a daemon | `drills` |
//! | `report` | verdicts as a terminal table, JSON and one HTML page with a timeline | `drills` |
//!
//! Data flows one way: `scenario` and `chaos` drive `fleet` (workers, store, `proxy`), workers
//! write `history`, `oracle` judges it with `invariant`, and `report` prints the verdict.
//!
//! Terms: see `docs/glossary.md`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "drills")]
pub mod chaos;
#[cfg(feature = "drills")]
pub mod fleet;
pub mod history;
#[cfg(feature = "drills")]
pub mod hostile;
pub mod invariant;
pub mod oracle;
#[cfg(feature = "drills")]
pub mod plane;
pub mod proxy;
#[cfg(feature = "drills")]
pub mod report;
#[cfg(feature = "drills")]
pub mod scenario;

// Runs the README's code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
