// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::config::Config;
use api::client::Clients;
use api::supervisor::TaskEnded;
use api::testing::{panicking_clients, silent_clients};
use clap::Parser;

/// A leader of an API server with these clients, and its supervisor.
fn leader(clients: Clients) -> (Leader, Supervisor) {
    let supervisor = Supervisor::default();
    let config = Config::try_parse_from(["rdmanet-controller", "--identity", "a"]).unwrap();
    let context = Arc::new(Context::new(config, clients, store().0, supervisor.stop()));
    let (elected, changed) = (watch::channel(true).1, watch::channel(()).1);
    let leader = Leader::new(context, supervisor.clone(), elected, changed);
    (leader, supervisor)
}

/// Its caches would be stale, and the other replica would not take over.
#[tokio::test]
async fn a_leader_whose_watch_panics_stops_the_process() {
    let watches = [
        ("/ipblocks", "watch of blocks"),
        ("/nodes", "watch of nodes"),
        ("/addressspaces", "watch of address spaces"),
    ];
    for (resource, task) in watches {
        let (leader, supervisor) = leader(panicking_clients(resource));
        let _caches = leader.watch().await;
        assert!(supervisor.stop().is_cancelled(), "{task}");
        let how = "panicked";
        let ended = supervisor.finish(Duration::MAX).await;
        assert_eq!(ended, Err(TaskEnded { task, how }));
    }
}

#[tokio::test]
async fn a_leader_that_drops_its_caches_ends_its_watches_and_goes_on() {
    let (leader, supervisor) = leader(silent_clients());
    assert!(leader.watch().now_or_never().is_none());
    supervisor.wait().await;
    assert!(!supervisor.stop().is_cancelled());
}
