// SPDX-License-Identifier: Apache-2.0
//! DEL: everything that ADD made goes away, however far it came and whatever is left of the container.

use crate::config::Identity;
use crate::error::Error;
use crate::journal::{Entry, Journal};
use crate::kernel::Side;
use crate::mark::Mark;
use crate::netns::pod_if_there;
use crate::{CniIpoib, detach, device_info};
use common::cni::dispatch::Call;
use common::cni::{self, Attachment, Delegate};
use std::path::{Path, PathBuf};

impl CniIpoib {
    /// Detaches a container.
    ///
    /// # Guarantees
    /// Succeeds when there is nothing to do: repeated, without namespace, without `prevResult`, with the parent gone.
    /// Only links that bear this attachment's mark, or that `prevResult` proves to be its own, are deleted. The
    /// addresses are released when no link has them any more.
    ///
    /// # Caveats
    /// If the link cannot be deleted the addresses stay allocated, and the error makes the runtime try again.
    pub(crate) fn del(
        &self,
        call: &Call,
        attachment: &Attachment,
        netns: Option<&Path>,
    ) -> Result<(), cni::Error> {
        let identity = Identity::read(call);
        let entry = self.entry_for_del(call, attachment)?;
        let intent = entry.as_ref().and_then(|entry| entry.intent.clone());
        // The runtime's word on where the container is goes before ours.
        let place = match (netns, &intent) {
            (Some(path), _) => Some((path.to_owned(), None)),
            (None, Some(intent)) => Some((intent.netns.clone(), Some(intent.netns_id))),
            (None, None) => None,
        };
        self.remove_link(call, attachment, place)?;
        let info = intent.and_then(|intent| intent.device_info);
        if let Some(file) = info
            && let Err(error) = device_info::remove(&file)
        {
            tracing::warn!(file = %file.display(), %error, "the device-info file is left");
        }
        if let Some(plugin) = &identity.ipam {
            Delegate::new(plugin, call, identity.delegate_timeout)?.del(attachment, netns)?;
        }
        entry.map_or(Ok(()), Entry::remove)?;
        Ok(())
    }

    /// Locks the attachment. A state directory that cannot be written must not keep a container from being removed.
    fn entry_for_del(&self, call: &Call, attachment: &Attachment) -> Result<Option<Entry>, Error> {
        match Journal::new(&self.places.state, &call.conf.network).open(attachment) {
            Ok(entry) => Ok(Some(entry)),
            Err(Error::Io {
                what, path, source, ..
            }) => {
                tracing::warn!(%source, "cannot {what} {}; going on without it", path.display());
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Deletes the attachment's link in the container, or where the kernel put it when the container died.
    pub(crate) fn remove_link(
        &self,
        call: &Call,
        attachment: &Attachment,
        place: Option<(PathBuf, Option<(u64, u64)>)>,
    ) -> Result<(), cni::Error> {
        let mark = Mark::new(&call.conf.network, attachment);
        let netns = place.and_then(|(path, id)| pod_if_there(&path, id));
        let mut kernel = self.open_kernel(netns.as_ref())?;
        if netns.is_some() {
            let mut deleted = detach::delete_marked(&mut *kernel, Side::Pod, &mark)? > 0;
            if !deleted && let Ok(Some(prev)) = call.conf.prev_result() {
                deleted = detach::delete_answered(&mut *kernel, &attachment.ifname, &prev)?;
            }
            if deleted {
                return Ok(());
            }
        }
        let found = detach::delete_marked(&mut *kernel, Side::Host, &mark)?;
        if found > 0 {
            tracing::info!(%attachment, "deleted the link that the kernel had put back among the host's");
        }
        Ok(())
    }
}
