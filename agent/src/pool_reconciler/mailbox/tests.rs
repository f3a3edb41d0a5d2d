// SPDX-License-Identifier: Apache-2.0

use super::*;
use ipam::agent::Request;
use tokio::sync::oneshot;

fn ask(verb: &str) -> (Message, oneshot::Receiver<Response>) {
    let request: Request =
        serde_json::from_value(serde_json::json!({ "verb": verb, "pool": "rail0" })).unwrap();
    let (answer, receiver) = oneshot::channel();
    let question = PluginRequest {
        request,
        answer,
        asked: Instant::now(),
        pool_version: 0,
        waits: false,
    };
    (Message::Request(Box::new(question)), receiver)
}

fn mailbox() -> (mpsc::Sender<Message>, Mailbox) {
    let (sender, messages) = mpsc::channel(16);
    (sender, Mailbox::new(messages))
}

#[tokio::test(start_paused = true)]
async fn plugin_requests_keep_their_order_and_start_no_round() {
    let (sender, mut mailbox) = mailbox();
    let (first, _waits) = ask("status");
    let (second, _waits_too) = ask("claim");
    sender.send(first).await.unwrap();
    sender.send(second).await.unwrap();
    assert_eq!(mailbox.receive().await, Received::PluginRequest);
    assert_eq!(mailbox.receive().await, Received::PluginRequest);
    assert!(!mailbox.has_change());
    assert_eq!(mailbox.next_deadline(), Some(Instant::now() + PLUGIN_LIMIT));
    let verbs: Vec<Verb> = std::iter::from_fn(|| mailbox.next_request())
        .map(|question| question.request.verb)
        .collect();
    assert_eq!(verbs, [Verb::Status, Verb::Claim]);
    assert_eq!(mailbox.next_deadline(), None);
}

#[tokio::test]
async fn a_release_is_answered_at_once_and_handled_in_the_next_round() {
    let (sender, mut mailbox) = mailbox();
    let (release, mut response) = ask("release");
    sender.send(release).await.unwrap();
    assert_eq!(mailbox.receive().await, Received::Change);
    assert!(matches!(response.try_recv(), Ok(Response::Reply(Reply::Done))));
    assert!(mailbox.next_request().is_none());
    assert!(mailbox.has_change() && mailbox.begin_round());
    assert!(!mailbox.has_change() && !mailbox.begin_round());
}

#[tokio::test]
async fn changes_during_a_round_start_one_more_round() {
    let (sender, mut mailbox) = mailbox();
    assert!(!mailbox.begin_round());
    for _ in 0..3 {
        sender.send(Message::Reconcile).await.unwrap();
        assert_eq!(mailbox.receive().await, Received::Change);
    }
    assert!(mailbox.has_change());
    mailbox.begin_round();
    assert!(!mailbox.has_change());
}

#[tokio::test]
async fn an_inbox_without_senders_is_closed() {
    let (sender, mut mailbox) = mailbox();
    assert!(mailbox.is_open());
    drop(sender);
    assert_eq!(mailbox.receive().await, Received::Closed);
    assert!(!mailbox.is_open());
}
