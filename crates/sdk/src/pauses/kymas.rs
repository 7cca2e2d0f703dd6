//! The labels of Kymas, while a Pause selects by them.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::{Api, ResourceExt, core::PartialObjectMeta};
use kube_runtime::watcher;
use kyma_api::Kyma;
use tokio::sync::watch;

use super::halt::{Known, KymaLabels, kyma_label};
use crate::{Runtime, hub_watch};

/// Follows the labels of all Kymas of the hub namespace, by metadata alone.
pub(super) struct Labels {
    api: Api<PartialObjectMeta<Kyma>>,
    known: watch::Sender<Known>,
}

impl Labels {
    pub(super) fn new(runtime: &Runtime, known: watch::Sender<Known>) -> Self {
        Self { api: Api::namespaced(runtime.hub.clone(), &runtime.settings.hub_namespace), known }
    }

    /// Follows them whenever a Pause selects, for ever; forgets them when none does any more.
    pub(super) async fn follow(self) {
        let mut changes = self.known.subscribe();
        loop {
            // The sender is held here.
            _ = changes.wait_for(Known::selects).await.map(drop);
            tokio::select! {
                () = self.read() => return,
                _ = changes.wait_for(|known| !known.selects()) => {}
            }
            self.known.send_modify(|known| known.kymas = None);
        }
    }

    async fn read(&self) {
        let mut events = pin!(hub_watch(self.api.clone(), watcher::Config::default()));
        let mut listed = KymaLabels::new();
        while let Some(event) = events.next().await {
            let Ok(event) = event else { continue };
            match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(kyma) => insert(&mut listed, &kyma),
                watcher::Event::InitDone => {
                    let all = Arc::new(std::mem::take(&mut listed));
                    self.known.send_modify(|known| known.kymas = Some(all));
                }
                watcher::Event::Apply(kyma) => self.change(|kymas| insert(kymas, &kyma)),
                watcher::Event::Delete(kyma) => {
                    self.change(|kymas| drop(kymas.remove(&kyma_label(&kyma.name_any()))));
                }
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut KymaLabels)) {
        self.known.send_if_modified(|known| {
            let Some(kymas) = &mut known.kymas else { return false };
            let before = Arc::clone(kymas);
            change(Arc::make_mut(kymas));
            before != *kymas
        });
    }
}

fn insert(kymas: &mut KymaLabels, kyma: &PartialObjectMeta<Kyma>) {
    kymas.insert(kyma_label(&kyma.name_any()), kyma.labels().clone());
}
