// SPDX-License-Identifier: Apache-2.0
//! How often candidates look, and whom they take for dead.

use super::*;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One of so many.
fn candidate(nodes: u64) -> Eye {
    Eye {
        me: "me".to_owned(),
        duration: DURATION,
        seen: None,
        nodes,
    }
}

#[test]
fn ten_thousand_candidates_together_look_twenty_times_a_second() {
    let looks: f64 = (0..10_000_u32)
        .map(|i| {
            1.0 / candidate(10_000)
                .pause(Found::Kept, f64::from(i) / 10_000.0)
                .as_secs_f64()
        })
        .sum();
    assert!((20.0..25.0).contains(&looks), "{looks} a second");
}

#[test]
fn a_few_candidates_look_more_often_than_a_keeper_may_be_silent() {
    for chance in [0.0, 0.5, 1.0] {
        assert!(candidate(3).pause(Found::Kept, chance) < DURATION);
    }
    assert_eq!(candidate(u64::MAX).pause(Found::Kept, 0.5), SELDOM);
}

/// Three hundred of ten thousand look while a keeper is silent for so long.
#[test]
fn those_that_find_a_lease_old_come_for_it_one_after_another_and_the_first_one_soon() {
    let mut comes: Vec<Duration> = (1..=300)
        .map(|i| candidate(10_000).pause(Found::Old(DURATION), f64::from(i) / 300.0))
        .collect();
    assert!(comes[0] < DURATION + DURATION / 3);
    comes.dedup_by_key(|comes| comes.as_secs());
    assert_eq!(comes.len(), 300);
    assert_eq!(candidate(3).pause(Found::Old(DURATION), 1.0), DURATION);
}

fn of(holder: &str, version: &str, silent: Duration) -> Lease {
    let renewed = Timestamp::now() - silent;
    Lease {
        metadata: ObjectMeta {
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

#[test]
fn a_silent_keeper_is_looked_at_again_soon_and_replaced_only_if_its_lease_has_not_changed() {
    let mut me = candidate(0);
    assert_eq!(me.find(&of("other", "1", Duration::from_secs(1))), Found::Kept);
    assert_eq!(
        me.find(&of("other", "2", DURATION)),
        Found::Old(DURATION),
        "by its clock it is late"
    );
    assert!(
        matches!(me.find(&of("other", "2", DURATION)), Found::Old(left) if left < DURATION),
        "for a moment only"
    );
    me.seen = me
        .seen
        .map(|(version, since)| (version, since.checked_sub(DURATION).unwrap()));
    assert_eq!(
        me.find(&of("other", "3", DURATION)),
        Found::Old(DURATION),
        "it lives, with another clock"
    );
    me.seen = me
        .seen
        .map(|(version, since)| (version, since.checked_sub(DURATION).unwrap()));
    assert_eq!(me.find(&of("other", "3", DURATION)), Found::Mine);
    assert_eq!(
        me.find(&of("", "4", Duration::ZERO)),
        Found::Mine,
        "it has resigned"
    );
    assert_eq!(
        me.find(&of("me", "5", Duration::ZERO)),
        Found::Mine,
        "of this agent's life before"
    );
}

#[test]
fn a_candidate_reads_on_the_lease_how_many_there_are() {
    let mut me = candidate(0);
    let mut lease = of("other", "1", Duration::ZERO);
    me.find(&lease);
    assert_eq!(me.nodes, 0);
    lease.metadata.annotations = Some([(NODES.to_owned(), "10000".to_owned())].into());
    me.find(&lease);
    assert_eq!(me.nodes, 10_000);
    lease.metadata.annotations = None;
    me.find(&lease);
    assert_eq!(me.nodes, 10_000, "an older agent has written over it");
}

/// It counts the nodes itself, and has written the older number.
#[test]
fn a_keeper_does_not_believe_what_it_has_written_itself() {
    let mut me = candidate(300);
    let mut lease = of("me", "1", Duration::ZERO);
    lease.metadata.annotations = Some([(NODES.to_owned(), "0".to_owned())].into());
    assert_eq!(me.find(&lease), Found::Mine);
    assert_eq!(me.nodes, 300);
}

/// An API server that has one Lease.
#[derive(Clone, Default)]
struct Shelf {
    lease: Arc<Mutex<Value>>,
    asked: Arc<Mutex<Vec<String>>>,
}

/// A candidate at work.
struct Member {
    is_keeper: watch::Receiver<bool>,
    /// Its requests take effect, and it does not hear of it for now.
    is_deaf: Arc<AtomicBool>,
    stop: CancellationToken,
}

/// Long enough for a busy machine.
const SHORT: Duration = Duration::from_secs(2);

impl Shelf {
    fn answer(&self, method: &str, body: &[u8]) -> (u16, Value) {
        self.asked.lock().unwrap().push(method.to_owned());
        let mut there = self.lease.lock().unwrap();
        let before = there["metadata"]["resourceVersion"].clone();
        let refusal = |code: u16| {
            let status = json!({ "status": "Failure", "code": code, "message": "", "reason": "" });
            (code, status)
        };
        match method {
            "GET" if there.is_null() => refusal(404),
            "GET" => (200, there.clone()),
            _ => {
                let mut new: Value = serde_json::from_slice(body).unwrap();
                if new["metadata"]["resourceVersion"] != before {
                    return refusal(409);
                }
                let version = before.as_str().map_or(0, |before| before.parse::<u64>().unwrap());
                new["metadata"]["resourceVersion"] = json!((version + 1).to_string());
                there.clone_from(&new);
                (200, new)
            }
        }
    }

    fn join(&self, me: &str) -> Member {
        let is_deaf = Arc::new(AtomicBool::new(false));
        let (server, deaf) = (self.clone(), is_deaf.clone());
        let service = tower::service_fn(move |request: hyper::Request<Body>| {
            let (server, deaf) = (server.clone(), deaf.clone());
            async move {
                let method = request.method().to_string();
                let body = request.into_body().collect().await?.to_bytes();
                let (status, answer) = server.answer(&method, &body);
                while deaf.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let body = Body::from(serde_json::to_vec(&answer).unwrap());
                let answer = hyper::Response::builder().status(status).body(body);
                Ok::<_, tower::BoxError>(answer.unwrap())
            }
        });
        let leases = Api::namespaced(Client::new(service, "n"), "n");
        let (says, is_keeper) = watch::channel(false);
        let stop = CancellationToken::new();
        let election = Election::of(leases, me, SHORT);
        tokio::spawn(election.run(watch::channel(None).1, says, stop.clone()));
        Member {
            is_keeper,
            is_deaf,
            stop,
        }
    }
}

impl Member {
    async fn becomes(&mut self, keeper: bool) {
        let said = self.is_keeper.wait_for(|is| *is == keeper);
        tokio::time::timeout(SHORT * 10, said).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_keeper_renews_by_one_request_and_another_follows_at_once_when_it_resigns() {
    let shelf = Shelf::default();
    let mut first = shelf.join("a");
    first.becomes(true).await;
    tokio::time::sleep(SHORT * 2).await;
    let asked = std::mem::take(&mut *shelf.asked.lock().unwrap());
    assert_eq!(asked[..2], ["GET", "POST"]);
    assert!(
        asked.len() > 3 && asked[2..].iter().all(|one| one == "PUT"),
        "{asked:?}"
    );
    assert!(*first.is_keeper.borrow());
    first.stop.cancel();
    tokio::time::timeout(SHORT, first.is_keeper.changed())
        .await
        .unwrap()
        .unwrap_err();
    let mut second = shelf.join("b");
    second.becomes(true).await;
}

#[tokio::test]
async fn a_keeper_without_answers_is_it_until_others_may_be_and_no_longer() {
    let shelf = Shelf::default();
    let mut first = shelf.join("a");
    first.becomes(true).await;
    let mut second = shelf.join("b");
    first.is_deaf.store(true, Ordering::Relaxed);
    let deaf = Instant::now();
    second.becomes(true).await;
    assert!(!*first.is_keeper.borrow(), "two keepers");
    assert!(deaf.elapsed() > SHORT / 2, "for want of one answer");
    first.is_deaf.store(false, Ordering::Relaxed);
    second.stop.cancel();
    first.becomes(true).await;
}
