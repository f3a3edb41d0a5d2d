// SPDX-License-Identifier: Apache-2.0
use super::*;
use tokio::net::TcpStream;

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

/// In a cluster of IPv6 pods the kubelet connects to the IPv6 address of a pod.
#[tokio::test]
async fn the_unspecified_ipv6_address_serves_both_families_or_ipv4_alone() {
    let listener = listen("[::]:0".parse().unwrap()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connected = async |address: &str| TcpStream::connect((address, port)).await.is_ok();
    assert!(connected("127.0.0.1").await);
    // Without IPv6 on the loopback there is no ::1, as in many containers.
    let addresses = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let has_loopback = addresses.contains("00000000000000000000000000000001 ");
    assert_eq!(connected("::1").await, has_loopback);
}

/// `bind` of a kernel that was started with `ipv6.disable=1`.
#[tokio::test]
async fn without_ipv6_the_unspecified_address_is_that_of_ipv4() {
    let bind = async |address: SocketAddr| match address {
        SocketAddr::V4(_) => Ok(address),
        SocketAddr::V6(_) => Err(io::Error::from(Errno::EAFNOSUPPORT)),
    };
    let bound = async |address: &str| listen_with(address.parse().unwrap(), bind).await;
    assert_eq!(bound("[::]:9472").await.unwrap(), "0.0.0.0:9472".parse().unwrap());
    assert_eq!(
        bound("127.0.0.1:9471").await.unwrap(),
        "127.0.0.1:9471".parse().unwrap()
    );
    let error = bound("[::1]:9471").await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot listen on [::1]:9471: Address family"),
        "{error}"
    );
}
