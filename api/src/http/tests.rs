// SPDX-License-Identifier: Apache-2.0
use super::*;

struct Daemon(Result<(), String>);

impl Health for Daemon {
    fn metrics(&self) -> String {
        "# EOF\n".to_owned()
    }

    fn ready(&self) -> Result<(), String> {
        self.0.clone()
    }
}

/// Status and content type of the response.
fn get(daemon: &Daemon, path: &str) -> (u16, String) {
    let request = Request::get(path).body(()).unwrap();
    let response = respond(daemon, &request);
    let format = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    (response.status().as_u16(), format)
}

#[test]
fn metrics_name_their_format_and_the_rest_is_text() {
    let ready = Daemon(Ok(()));
    assert_eq!(get(&ready, "/metrics"), (200, OPEN_METRICS.to_owned()));
    assert_eq!(get(&ready, "/healthz"), (200, PLAIN.to_owned()));
    assert_eq!(get(&ready, "/readyz"), (200, PLAIN.to_owned()));
    assert_eq!(get(&ready, "/else"), (404, PLAIN.to_owned()));
    let unready = Daemon(Err("no Node".to_owned()));
    assert_eq!(get(&unready, "/readyz"), (503, PLAIN.to_owned()));
    assert_eq!(get(&unready, "/healthz"), (200, PLAIN.to_owned()));
}
