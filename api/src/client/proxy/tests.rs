// SPDX-License-Identifier: Apache-2.0

use super::*;
use serde_json::json;

/// The proxy for the server at `url` in an environment with these variables.
fn proxy_of(url: &str, variables: &[(&str, &str)]) -> Option<String> {
    of_environment(&url.parse().unwrap(), |name| {
        let value = variables.iter().find(|(its, _)| *its == name)?.1;
        Some(value.to_owned())
    })
}

#[test]
fn a_server_in_the_no_proxy_list_is_reached_directly() {
    for exempt in [
        "*",
        "10.96.0.1",
        "10.96.0.0/12",
        "10.96.0.1:443",
        "localhost, 10.96.0.1",
        "localhost,,10.96.0.1,",
    ] {
        let variables = [("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", exempt)];
        assert_eq!(proxy_of("https://10.96.0.1", &variables), None, "{exempt}");
    }
    for exempt in [
        "example.org",
        ".example.org",
        "api.example.org",
        "api.example.org:6443",
    ] {
        let variables = [("https_proxy", "http://p:3128"), ("no_proxy", exempt)];
        assert_eq!(
            proxy_of("https://api.example.org:6443", &variables),
            None,
            "{exempt}"
        );
    }
}

#[test]
fn a_server_outside_the_no_proxy_list_is_reached_through_the_proxy() {
    for exempt in [
        "",
        "p",
        "10.97.0.0/16",
        "10.96.0.1:6443",
        "kubernetes.default.svc",
    ] {
        let variables = [("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", exempt)];
        let proxy = proxy_of("https://10.96.0.1:443", &variables);
        assert_eq!(proxy.as_deref(), Some("http://p:3128"), "{exempt}");
    }
}

#[test]
fn an_empty_proxy_variable_or_one_for_another_scheme_is_ignored() {
    assert_eq!(proxy_of("https://api", &[]), None);
    assert_eq!(proxy_of("https://api", &[("HTTPS_PROXY", "")]), None);
    assert_eq!(proxy_of("http://api", &[("HTTPS_PROXY", "http://p")]), None);
    let plain = proxy_of("https://api", &[("HTTPS_PROXY", "p:3128")]);
    assert_eq!(plain.as_deref(), Some("http://p:3128"));
}

#[test]
fn the_context_of_a_kubeconfig_selects_the_proxy_of_its_cluster() {
    let kubeconfig: Kubeconfig = serde_json::from_value(json!({
        "clusters": [
            { "name": "near", "cluster": { "server": "https://near" } },
            { "name": "far", "cluster": { "server": "https://far", "proxy-url": "http://p:3128" } },
        ],
        "contexts": [
            { "name": "here", "context": { "cluster": "near", "user": "u" } },
            { "name": "there", "context": { "cluster": "far", "user": "u" } },
        ],
        "current-context": "here",
    }))
    .unwrap();
    assert_eq!(of_kubeconfig(&kubeconfig, None), None);
    let far = of_kubeconfig(&kubeconfig, Some("there"));
    assert_eq!(far.as_deref(), Some("http://p:3128"));
    assert_eq!(of_kubeconfig(&kubeconfig, Some("elsewhere")), None);
}
