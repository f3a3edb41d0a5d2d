// SPDX-License-Identifier: Apache-2.0

use super::*;
use kube::core::ObjectMeta;

fn namespace(name: &str, team: Option<&str>) -> PartialObjectMeta<Namespace> {
    let labels = team.map(|team| [("team".to_owned(), team.to_owned())].into());
    PartialObjectMeta {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels,
            ..ObjectMeta::default()
        },
        ..PartialObjectMeta::default()
    }
}

fn of_team(team: &str) -> Selector {
    kube::core::Expression::Equal("team".to_owned(), team.to_owned()).into()
}

async fn selected(namespaces: &Namespaces) -> Vec<String> {
    let deadline = Deadline::background();
    namespaces.selected(&deadline, &of_team("ml")).await.unwrap()
}

#[tokio::test]
async fn names_are_returned_only_after_a_complete_list() {
    let namespaces = Namespaces::default();
    namespaces.take(Ok(Event::Init));
    namespaces.take(Ok(Event::InitApply(namespace("a", Some("ml")))));
    let soon = Deadline::At(tokio::time::Instant::now() + Duration::from_millis(20));
    let early = namespaces.selected(&soon, &of_team("ml")).await;
    assert!(matches!(early, Err(ApiError::NoResponse { .. })), "{early:?}");
    assert!(namespaces.take(Ok(Event::InitDone)));
    assert_eq!(selected(&namespaces).await, ["a"]);
}

#[tokio::test]
async fn a_namespace_is_selected_by_its_current_labels() {
    let namespaces = Namespaces::default();
    for event in [
        Event::Init,
        Event::InitApply(namespace("b", Some("ml"))),
        Event::InitApply(namespace("a", None)),
        Event::InitDone,
    ] {
        namespaces.take(Ok(event));
    }
    assert!(namespaces.take(Ok(Event::Apply(namespace("a", Some("ml"))))));
    // An edit that does not change labels starts no round.
    assert!(!namespaces.take(Ok(Event::Apply(namespace("a", Some("ml"))))));
    assert_eq!(selected(&namespaces).await, ["a", "b"]);
    assert!(namespaces.take(Ok(Event::Apply(namespace("b", Some("web"))))));
    assert!(namespaces.take(Ok(Event::Delete(namespace("a", Some("ml"))))));
    assert!(selected(&namespaces).await.is_empty());
}

#[tokio::test]
async fn a_namespace_that_is_missing_from_a_later_list_is_gone() {
    let namespaces = Namespaces::default();
    for event in [
        Event::Init,
        Event::InitApply(namespace("a", Some("ml"))),
        Event::InitDone,
        Event::Init,
    ] {
        namespaces.take(Ok(event));
    }
    // The known names stay while the next list is in progress.
    assert_eq!(selected(&namespaces).await, ["a"]);
    assert!(namespaces.take(Ok(Event::InitDone)));
    assert!(selected(&namespaces).await.is_empty());
}
