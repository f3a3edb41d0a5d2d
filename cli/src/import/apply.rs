// SPDX-License-Identifier: Apache-2.0
//! Applies a step. Each write has the version that was read as its precondition, so one of two concurrent runs fails and
//! can be repeated.

use super::annotation::BEFORE;
use super::plan::annotation;
use super::source::Network;
use super::step::{Action, Step};
use crate::cluster::snapshot::{config_of, definition, unready};
use crate::cluster::{explain, explain_write};
use crate::output::CommandError;
use api::IpPool;
use api::deadline::Deadline;
use api::requests::{Requests, WriteResult};
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Writes the pool, and then switches its networks if that is part of the step.
///
/// # Errors
/// The cluster refuses or does not respond, or an object has changed since it was read.
pub async fn apply(client: &Client, step: &Step) -> Result<(), CommandError> {
    let api: Api<IpPool> = Api::all(client.clone());
    let (key, record) = annotation(&step.record);
    match (&step.action, &step.object) {
        (Action::Keep, _) => {}
        (Action::Create, _) | (Action::Write, None) => {
            let mut pool = IpPool::new(&step.pool, step.spec.clone());
            pool.annotations_mut().insert(key, record);
            let created = api.create(&PostParams::default(), &pool).await;
            created.map_err(|e| write_error(&format!("create IPPool {}", step.pool), &e))?;
        }
        (Action::Write, Some(before)) => write(client, step, before.clone(), &key, &record).await?,
    }
    if step.switch {
        for network in &step.networks {
            switch(client, network, &step.pool, &step.record.source).await?;
        }
    }
    Ok(())
}

/// How long the command waits until the controller has read a spec.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(30);

/// Waits until the controller has read the spec of `pool`. Returns the reason if the controller has not accepted the spec.
///
/// # Errors
/// As [`explain`].
pub async fn wait_accepted(client: &Client, pool: &str) -> Result<Option<String>, CommandError> {
    let api: Api<IpPool> = Api::all(client.clone());
    let deadline = Instant::now() + ACCEPTED_WITHIN;
    loop {
        let object = api.get(pool).await;
        let object = object.map_err(|e| explain(&format!("read IPPool {pool}"), &e))?;
        let why = unready(&object);
        if why.is_none() || Instant::now() >= deadline {
            return Ok(why);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// How often the write of a pool is retried because the controller or an agent changed the pool meanwhile.
const ATTEMPTS: usize = 5;

/// Gives the pool the spec and the record of the step. Fields that only a later version knows stay, except in the items of lists.
async fn write(
    client: &Client,
    step: &Step,
    before: IpPool,
    key: &str,
    record: &str,
) -> Result<(), CommandError> {
    let doing = format!("change IPPool {}", step.pool);
    let api: Api<IpPool> = Api::all(client.clone());
    let requests = Requests::new(client.clone(), Deadline::background());
    let mut current = before.clone();
    for attempt in 1.. {
        let mut pool = current.clone();
        pool.spec = step.spec.clone();
        pool.annotations_mut().insert(key.to_owned(), record.to_owned());
        match requests.replace_spec(&current, &pool).await {
            Ok(WriteResult::Applied(_)) => return Ok(()),
            Ok(WriteResult::Conflict) if attempt < ATTEMPTS => {}
            Ok(WriteResult::Conflict) => break,
            Err(e) => return Err(CommandError(format!("cannot {doing}: {}", explain_write(&e)))),
        }
        current = api.get(&step.pool).await.map_err(|e| explain(&doing, &e))?;
        let same =
            current.spec == before.spec && current.annotations().get(key) == before.annotations().get(key);
        if !same || current.metadata.uid != before.metadata.uid {
            break;
        }
    }
    Err(CommandError(format!(
        "cannot {doing}: another client has just changed it; run this again"
    )))
}

async fn switch(client: &Client, network: &Network, pool: &str, source: &str) -> Result<(), CommandError> {
    let unreadable = || {
        CommandError(format!(
            "the configuration of network {} cannot be changed; switch it by hand",
            network.name
        ))
    };
    let mut object = network.object.clone();
    let text = config_of(&object).ok_or_else(unreadable)?.to_owned();
    let config = switched(&text, pool, source).ok_or_else(unreadable)?;
    object.data["spec"]["config"] = json!(config);
    object.annotations_mut().insert(BEFORE.to_owned(), text);
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &definition());
    let done = api
        .replace(&object.name_any(), &PostParams::default(), &object)
        .await;
    done.map(|_| ())
        .map_err(|e| write_error(&format!("switch network {}", network.name), &e))
}

/// `config` with every `ipam` section of `source` replaced by one of `pool`.
pub(super) fn switched(config: &str, pool: &str, source: &str) -> Option<String> {
    let mut config: Value = serde_json::from_str(config).ok()?;
    let mut done = replace(&mut config, pool, source);
    for plugin in config
        .get_mut("plugins")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        done |= replace(plugin, pool, source);
    }
    done.then(|| format!("{config:#}"))
}

fn replace(plugin: &mut Value, pool: &str, source: &str) -> bool {
    let Some(ipam) = plugin.get_mut("ipam").filter(|ipam| ipam["type"] == source) else {
        return false;
    };
    let mut new = json!({ "type": "rdma-ipam", "pool": pool });
    for key in ["dns", "resolvConf"] {
        if let Some(value) = ipam.get(key) {
            new[key] = value.clone();
        }
    }
    if needs_own_routes(&ipam["routes"]) {
        new["routes"] = ipam["routes"].clone();
    }
    *ipam = new;
    true
}

/// Whether a route has a key that a route of a pool cannot have.
fn needs_own_routes(routes: &Value) -> bool {
    let routes = routes.as_array().into_iter().flatten();
    let mut keys = routes.filter_map(Value::as_object).flat_map(|route| route.keys());
    keys.any(|key| !matches!(key.as_str(), "dst" | "gw"))
}

fn write_error(doing: &str, error: &kube::Error) -> CommandError {
    match error {
        kube::Error::Api(status) if status.code == 409 => CommandError(format!(
            "cannot {doing}: another client has just changed it; run this again"
        )),
        other => explain(doing, other),
    }
}
