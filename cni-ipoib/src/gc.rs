// SPDX-License-Identifier: Apache-2.0
//! GC: every attachment of this network that the runtime does not know any more goes away.

use crate::config::Identity;
use crate::journal::{Entry, Journal};
use crate::kernel::Side;
use crate::{CniIpoib, detach, device_info};
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, Delegate, GcConf};

impl CniIpoib {
    /// Removes what is not valid.
    ///
    /// # Guarantees
    /// Goes on past errors and reports them together. Attachments of other networks are not touched. The IPAM plugin
    /// is told to release each removed attachment, for plugins without GC, and then to collect for itself.
    pub(crate) fn gc(&self, call: &Call, gc: &GcConf) -> Result<(), cni::Error> {
        let identity = Identity::read(call);
        let journal = Journal::new(&self.places.state, &call.conf.network);
        let mut errors = Vec::new();
        let known = journal.attachments().unwrap_or_else(|e| {
            errors.push(e.into());
            Vec::new()
        });
        for stale in known.iter().filter(|known| !gc.valid.contains(known)) {
            tracing::info!(attachment = %stale, "not valid any more");
            if let Err(error) = self.collect(call, &identity, &journal, stale) {
                errors.push(error);
            }
        }
        if let Err(error) = self.collect_thrown_back(call, &gc.valid) {
            errors.push(error);
        }
        if let Some(plugin) = &identity.ipam
            && let Err(error) =
                Delegate::new(plugin, call, identity.delegate_timeout).and_then(|ipam| ipam.gc(&gc.valid))
        {
            errors.push(error);
        }
        together(errors)
    }

    fn collect(
        &self,
        call: &Call,
        identity: &Identity,
        journal: &Journal,
        stale: &Attachment,
    ) -> Result<(), cni::Error> {
        let Some(entry) = journal.existing(stale)? else {
            return Ok(());
        };
        let intent = entry.intent.clone();
        let netns = intent.as_ref().map(|intent| intent.netns.clone());
        self.remove_link(
            call,
            stale,
            intent
                .as_ref()
                .map(|intent| (intent.netns.clone(), Some(intent.netns_id))),
        )?;
        if let Some(file) = intent.as_ref().and_then(|intent| intent.device_info.as_deref())
            && let Err(error) = device_info::remove(file)
        {
            tracing::warn!(file = %file.display(), %error, "the device-info file is left");
        }
        let ipam = intent
            .and_then(|intent| intent.ipam)
            .or_else(|| identity.ipam.clone());
        if let Some(plugin) = ipam {
            Delegate::new(&plugin, call, identity.delegate_timeout)?.del(stale, netns.as_deref())?;
        }
        Ok(Entry::remove(entry)?)
    }

    /// Links whose namespace died, and whose file is gone as well: a link says itself whose it is.
    fn collect_thrown_back(&self, call: &Call, valid: &[Attachment]) -> Result<(), cni::Error> {
        let mut kernel = self.open_kernel(None)?;
        for (link, attachment) in detach::thrown_back(&mut *kernel, &call.conf.network)? {
            if !valid.contains(&attachment) {
                tracing::info!(link = link.name, %attachment, "deleting a link that the kernel had put back");
                detach::delete(&mut *kernel, Side::Host, &link)?;
            }
        }
        Ok(())
    }
}

/// One error for all: the first one's code, every message.
fn together(errors: Vec<cni::Error>) -> Result<(), cni::Error> {
    let mut errors = errors.into_iter();
    let Some(mut first) = errors.next() else {
        return Ok(());
    };
    for error in errors {
        first.msg = format!("{}; {}", first.msg, error.msg);
        if !error.details.is_empty() {
            first.details = format!("{}; {}", first.details, error.details);
        }
    }
    Err(first)
}
