// SPDX-License-Identifier: Apache-2.0
use super::super::tests::{in_force, leader_of, recording_clients};
use super::*;
use serde_json::json;

fn sets(numbers: std::ops::Range<usize>) -> BTreeSet<SetKey> {
    let name = |i| ("train".to_owned(), format!("db-{i:04}"));
    numbers.map(name).collect()
}

#[test]
fn every_stateful_set_has_its_turn_however_many_there_are() {
    let all = sets(0..3 * SETS_PER_ROUND - 1);
    let mut last = None;
    let mut checked = BTreeSet::new();
    for _ in 0..3 {
        let round = next_sets(&all, last.as_ref());
        assert_eq!(round.len(), SETS_PER_ROUND);
        last = round.last().cloned();
        checked.extend(round);
    }
    assert_eq!(checked, all);
}

#[test]
fn a_few_stateful_sets_are_checked_in_each_round() {
    let all = sets(0..3);
    let gone = ("train".to_owned(), "db-0001-gone".to_owned());
    for last in [None, all.first(), all.last(), Some(&gone)] {
        let round: BTreeSet<SetKey> = next_sets(&all, last).into_iter().collect();
        assert_eq!(round, all);
    }
    assert!(next_sets(&BTreeSet::new(), None).is_empty());
}

/// The writes of a round for an address of a pool with this cooldown in seconds, which no pod has requested for a minute.
async fn writes_for_an_obsolete_address(cooldown: i64) -> Vec<String> {
    let spec = json!({
        "ranges": [{ "subnet": "10.1.0.0/24" }], "blockSize": { "v4": 16 }, "cooldownSeconds": cooldown,
    });
    let (clients, writes) = recording_clients(200);
    let (mut leader, _supervisor) = leader_of(clients, vec![in_force("rail0", &spec)]);
    let holder = json!({ "namespace": "default", "pod": "db-0", "statefulSet": "db", "network": "n", "ifname": "net1" });
    let address: IpAddress = serde_json::from_value(json!({
        "metadata": { "name": "default-4-0a010003", "resourceVersion": "5" },
        "spec": {
            "pool": "rail0", "address": "10.1.0.3", "block": "10.1.0.0/28", "state": "Kept",
            "node": { "node": "a", "nodeUID": "u" }, "holder": holder,
        },
    }))
    .unwrap();
    let since = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    leader
        .obsolete
        .insert(address.name_any(), ("5".to_owned(), since));
    let holder = address.spec.holder.clone().unwrap();
    leader.free_if_unchanged(&address, &holder, "").await.unwrap();
    std::mem::take(&mut writes.lock().unwrap())
}

#[tokio::test]
async fn an_address_that_is_kept_for_no_pod_rests_before_it_is_freed() {
    assert_eq!(writes_for_an_obsolete_address(0).await, ["DELETE ipaddresses"]);
    assert_eq!(writes_for_an_obsolete_address(3600).await, Vec::<String>::new());
}
