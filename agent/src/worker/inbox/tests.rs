// SPDX-License-Identifier: Apache-2.0

use super::*;
use ipam::agent::Request;
use tokio::sync::oneshot;

fn ask(verb: &str) -> (Message, oneshot::Receiver<Answer>) {
    let request: Request =
        serde_json::from_value(serde_json::json!({ "verb": verb, "pool": "rail0" })).unwrap();
    let (answer, receiver) = oneshot::channel();
    let question = Question {
        request,
        answer,
        asked: Instant::now(),
        told: 0,
        waits: false,
    };
    (Message::Ask(Box::new(question)), receiver)
}

fn inbox() -> (mpsc::Sender<Message>, Inbox) {
    let (sender, messages) = mpsc::channel(16);
    (sender, Inbox::new(messages))
}

#[tokio::test]
async fn plugin_requests_keep_their_order_and_start_no_round() {
    let (sender, mut inbox) = inbox();
    let (first, _waits) = ask("status");
    let (second, _waits_too) = ask("claim");
    sender.send(first).await.unwrap();
    sender.send(second).await.unwrap();
    assert_eq!(inbox.hear().await, Heard::Question);
    assert_eq!(inbox.hear().await, Heard::Question);
    assert!(!inbox.has_news());
    let left = inbox.next_end().unwrap().duration_since(Instant::now());
    assert!(left <= QUESTION && left > QUESTION / 2, "{left:?}");
    let verbs: Vec<Verb> = std::iter::from_fn(|| inbox.next_question())
        .map(|question| question.request.verb)
        .collect();
    assert_eq!(verbs, [Verb::Status, Verb::Claim]);
    assert_eq!(inbox.next_end(), None);
}

#[tokio::test]
async fn a_release_is_answered_at_once_and_handled_in_the_next_round() {
    let (sender, mut inbox) = inbox();
    let (release, mut told) = ask("release");
    sender.send(release).await.unwrap();
    assert_eq!(inbox.hear().await, Heard::News);
    assert!(matches!(told.try_recv(), Ok(Answer::Reply(Reply::Done))));
    assert!(inbox.next_question().is_none());
    assert!(inbox.has_news() && inbox.begin_round());
    assert!(!inbox.has_news() && !inbox.begin_round());
}

#[tokio::test]
async fn changes_during_a_round_start_one_more_round() {
    let (sender, mut inbox) = inbox();
    assert!(!inbox.begin_round());
    for _ in 0..3 {
        sender.send(Message::Look).await.unwrap();
        assert_eq!(inbox.hear().await, Heard::News);
    }
    assert!(inbox.has_news());
    inbox.begin_round();
    assert!(!inbox.has_news());
}

#[tokio::test]
async fn an_inbox_without_senders_is_closed() {
    let (sender, mut inbox) = inbox();
    assert!(inbox.is_open());
    drop(sender);
    assert_eq!(inbox.hear().await, Heard::Nothing);
    assert!(!inbox.is_open());
}
