// SPDX-License-Identifier: Apache-2.0
//! Chooses the HTTP proxy for the API server.
//!
//! The rules are those of client-go. `proxy-url` of a kubeconfig always counts. Without it, `HTTPS_PROXY` counts for a
//! server that speaks TLS, unless `NO_PROXY` names the server. kube 5.0.0 compares `NO_PROXY` with the name of the proxy
//! instead.

use super::tunnel::ProxyError;
use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

/// The proxy for `server` from the kubeconfig, if there is one, and from the environment. `None` means a direct
/// connection. `context` is the context in use, if it is not the current context of the kubeconfig.
///
/// # Errors
/// [`ProxyError::Unknown`].
pub fn select(
    kubeconfig: Option<&Kubeconfig>,
    context: Option<&str>,
    server: &Uri,
) -> Result<Option<Uri>, ProxyError> {
    let own = kubeconfig.and_then(|kubeconfig| of_kubeconfig(kubeconfig, context));
    let variable = |name: &str| std::env::var_os(name)?.into_string().ok();
    let Some(url) = own.or_else(|| of_environment(server, variable)) else {
        return Ok(None);
    };
    url.parse().map(Some).map_err(|_| ProxyError::unknown(&url))
}

fn of_kubeconfig(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let named = kubeconfig.contexts.iter().find(|named| named.name == context)?;
    let cluster = &named.context.as_ref()?.cluster;
    let named = kubeconfig.clusters.iter().find(|named| named.name == *cluster)?;
    let url = named.cluster.as_ref()?.proxy_url.clone();
    url.filter(|url| !url.is_empty())
}

fn of_environment(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let first = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(&variable);
        values.find(|value| !value.is_empty())
    };
    let proxy = first(["HTTPS_PROXY", "https_proxy"])?;
    let exempt = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let port = server.port_u16().unwrap_or(443).to_string();
    // A matcher supports hosts, domains and networks, but no ports, and its `*` does not match addresses.
    let hosts = exempt.split(',').map(|part| match part.trim().split_once(':') {
        Some((host, its)) if its == port => host,
        _ => part.trim(),
    });
    let hosts: Vec<_> = hosts.collect();
    if hosts.contains(&"*") {
        return None;
    }
    let matcher = Matcher::builder().https("http://any").no(hosts.join(",")).build();
    matcher.intercept(server)?;
    Some(if proxy.contains("://") {
        proxy
    } else {
        format!("http://{proxy}")
    })
}

#[cfg(test)]
mod tests;
