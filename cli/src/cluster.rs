// SPDX-License-Identifier: Apache-2.0
//! Connects to the API server: chooses the credentials, and explains each kind of failure in one sentence.

pub mod pods;
pub mod snapshot;

use crate::output::CommandError;
use api::IpPool;
use api::client::proxy;
use api::requests::ApiError;
use common::cni::error::causes;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::api::ListParams;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::{Request, Status};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The cluster, and the credentials for it.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Access {
    /// The file with the credentials; without it the variable KUBECONFIG, ~/.kube/config or, in a pod, the pod's own
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context in that file
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// The time limit for a connection, and for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Objects on one page of a list.
const PAGE: u32 = 500;

/// Makes a client for the cluster that `access` names.
///
/// # Errors
/// There is no kubeconfig, or it is unusable. The sentence names the file and the remedy.
pub async fn connect(access: &Access) -> Result<Client, CommandError> {
    let options = KubeConfigOptions {
        context: access.context.clone(),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = kubeconfig(access)?;
    let mut config = match kubeconfig.clone() {
        Some(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|e| CommandError(format!("{}: {}; kubectl config view shows it", credentials(access), causes(&e))))?,
        None => Config::incluster().map_err(|_| {
            CommandError::new(
                "there is no kubeconfig: --kubeconfig and KUBECONFIG are not set, and ~/.kube/config does not exist; set one of them to the file with your credentials, on a kubeadm control plane /etc/kubernetes/admin.conf",
            )
        })?,
    };
    config.proxy_url = proxy::select(
        kubeconfig.as_ref(),
        access.context.as_deref(),
        &config.cluster_url,
    )
    .map_err(|e| CommandError(format!("{}: {e}", credentials(access))))?;
    config.connect_timeout = Some(TIMEOUT);
    config.read_timeout = Some(TIMEOUT);
    Client::try_from(config).map_err(|e| CommandError(format!("{}: {}", credentials(access), causes(&e))))
}

/// Reads the kubeconfig; `None` if there is none, as in a pod.
fn kubeconfig(access: &Access) -> Result<Option<Kubeconfig>, CommandError> {
    if let Some(file) = &access.kubeconfig {
        return Kubeconfig::read_from(file)
            .map(Some)
            .map_err(|e| unusable(&credentials(access), &e));
    }
    match Kubeconfig::from_env() {
        Ok(Some(kubeconfig)) => return Ok(Some(kubeconfig)),
        Ok(None) => {}
        Err(e) => return Err(unusable(&credentials(access), &e)),
    }
    let Some(home) = std::env::var_os("HOME") else {
        return Ok(None);
    };
    let file = Path::new(&home).join(".kube/config");
    if !file.exists() {
        return Ok(None);
    }
    Kubeconfig::read_from(&file)
        .map(Some)
        .map_err(|e| unusable(&file.display().to_string(), &e))
}

fn unusable(file: &str, error: &KubeconfigError) -> CommandError {
    let why = causes(error);
    // The lines that follow show the file with an arrow in it.
    let why = why.lines().next().unwrap_or_default();
    CommandError(format!(
        "{file} cannot be used: {why}; name a file with your credentials by --kubeconfig or KUBECONFIG"
    ))
}

/// The name of the credentials in messages.
fn credentials(access: &Access) -> String {
    let named = access
        .kubeconfig
        .as_ref()
        .map(|file| format!("kubeconfig {}", file.display()));
    let variable = || std::env::var_os("KUBECONFIG").filter(|text| !text.is_empty());
    named
        .or_else(|| variable().map(|file| format!("kubeconfig {} (KUBECONFIG)", file.display())))
        .unwrap_or_else(|| "your kubeconfig".to_owned())
}

/// A refused write of a command that needs the rights of an operator, with the role that has them.
pub fn explain_write(error: &ApiError) -> String {
    match error {
        ApiError::Rejected { .. } => format!(
            "{error}; if a right is missing: ClusterRole rdmanet-operator has it (conf/rbac/people.yaml)"
        ),
        _ => error.to_string(),
    }
}

/// Explains a failed request. `doing` is the failed operation, such as `list IPPools`.
pub fn explain(doing: &str, error: &kube::Error) -> CommandError {
    let text = match error {
        kube::Error::Api(status) => refused(doing, status),
        kube::Error::Auth(e) => format!(
            "cannot {doing}: no credentials: {}; look at the users section of your kubeconfig",
            causes(e)
        ),
        other => format!(
            "cannot {doing}: the API server does not respond: {}; check its address in your kubeconfig (kubectl cluster-info), and that it runs",
            causes(other)
        ),
    };
    CommandError(text)
}

fn refused(doing: &str, status: &Status) -> String {
    let message = &status.message;
    match status.code {
        401 => format!(
            "cannot {doing}: the API server rejects your credentials (401): the token or certificate in your kubeconfig has expired or was revoked; get a new kubeconfig"
        ),
        403 => format!(
            "cannot {doing}: forbidden (403): {message}; an administrator can bind ClusterRole rdmanet-reader to your user, or rdmanet-operator for release and import (conf/rbac/people.yaml)"
        ),
        404 => format!(
            "cannot {doing}: not found (404): {message}; kubectl apply -f conf/crds installs the definitions"
        ),
        code => format!("cannot {doing}: the API server returned {code}: {message}"),
    }
}

/// The time of the API server's clock, which also stamps the times in objects. Each of its responses has it in the header
/// `Date`, with or without an error.
///
/// # Errors
/// The API server does not respond, or a proxy removes the header.
pub async fn server_time(client: &Client) -> Result<Timestamp, CommandError> {
    const DOING: &str = "read the time of the API server";
    let one = ListParams::default().limit(1);
    let request = Request::new(IpPool::url_path(&(), None)).list(&one);
    let request = request.map_err(|e| explain(DOING, &kube::Error::BuildRequest(e)))?;
    let response = client.send(request.map(Body::from)).await;
    let response = response.map_err(|e| explain(DOING, &e))?;
    let date = response.headers().get("date").and_then(|date| date.to_str().ok());
    date.and_then(|date| rfc2822::parse(date).ok())
        .map(|date| date.timestamp())
        .ok_or_else(|| {
            CommandError(format!(
                "cannot {DOING}: its response has no header Date; connect without the proxy that removes it"
            ))
        })
}

/// The time of the last change of `object`, by the API server's clock; `None` if the object records no changes. A change that
/// only removes members has no time.
///
/// Source: Kubernetes, `apimachinery/pkg/util/managedfields/internal/managedfieldsupdater.go` (`Update`).
pub fn last_change(object: &impl Resource) -> Option<Timestamp> {
    let writers = object.meta().managed_fields.iter().flatten();
    writers
        .filter_map(|writer| writer.time.as_ref())
        .map(|time| time.0)
        .max()
}

/// Lists all objects of `api`, page by page. The API server keeps the state of such a list for minutes. If it is gone before the
/// last page, the list begins anew, in one response.
///
/// # Errors
/// As [`explain`].
pub async fn list<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    kind: &str,
    params: &ListParams,
) -> Result<Vec<K>, CommandError> {
    let mut all = Vec::new();
    let mut next = params.clone().limit(PAGE);
    loop {
        let page = match api.list(&next).await {
            Err(kube::Error::Api(status)) if status.code == 410 && next.continue_token.is_some() => {
                all.clear();
                next = params.clone();
                continue;
            }
            page => page.map_err(|e| explain(&format!("list {kind}"), &e))?,
        };
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => next = next.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// The same as [`list`]; `None` if the cluster does not have this kind of object.
///
/// # Errors
/// As [`explain`].
pub async fn list_if_known<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    kind: &str,
) -> Result<Option<Vec<K>>, CommandError> {
    let one = ListParams::default().limit(1);
    match api.list(&one).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        _ => list(api, kind, &ListParams::default()).await.map(Some),
    }
}

/// `namespace/name` of an object.
pub fn full_name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
pub(crate) mod tests;
