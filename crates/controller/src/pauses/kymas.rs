//! The labels of Kymas, while a Pause selects by them.

use std::pin::pin;

use futures::StreamExt;
use kube::{Api, ResourceExt, core::PartialObjectMeta};
use kube_runtime::watcher;
use kyma_api::Kyma;
use tokio::sync::watch;

use super::kyma_labels::{KymaLabels, Labels};
use super::snapshot::{PauseSnapshot, kyma_label};
use crate::hub::watch::hub_watch;
use crate::process::runtime::Runtime;

/// Follows the labels of all Kymas of the hub namespace, by metadata alone.
pub(super) struct KymaLabelFollower {
    api: Api<PartialObjectMeta<Kyma>>,
    snapshot: watch::Sender<PauseSnapshot>,
}

impl KymaLabelFollower {
    pub(super) fn new(runtime: &Runtime, snapshot: watch::Sender<PauseSnapshot>) -> Self {
        Self { api: Api::namespaced(runtime.hub.clone(), &runtime.settings.hub_namespace), snapshot }
    }

    /// Watches the labels while a Pause has a selector and drops them otherwise, without end.
    pub(super) async fn follow(self) {
        let mut changes = self.snapshot.subscribe();
        loop {
            // The sender is held here.
            _ = changes.wait_for(PauseSnapshot::selects).await.map(drop);
            tokio::select! {
                () = self.read() => return,
                _ = changes.wait_for(|snapshot| !snapshot.selects()) => {}
            }
            self.snapshot.send_modify(|snapshot| snapshot.kymas = None);
        }
    }

    async fn read(&self) {
        let mut events = pin!(hub_watch(self.api.clone(), watcher::Config::default()));
        let mut listed = vec![];
        while let Some(event) = events.next().await {
            let Ok(event) = event else { continue };
            match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(kyma) => {
                    listed.push((kyma_label(&kyma.name_any()), kyma.labels().clone()));
                }
                watcher::Event::InitDone => {
                    let all: KymaLabels = std::mem::take(&mut listed).into_iter().collect();
                    self.snapshot.send_modify(|snapshot| snapshot.kymas = Some(all));
                }
                watcher::Event::Apply(kyma) => self.change(&kyma, Some(kyma.labels().clone())),
                watcher::Event::Delete(kyma) => self.change(&kyma, None),
            }
        }
    }

    fn change(&self, kyma: &PartialObjectMeta<Kyma>, labels: Option<Labels>) {
        self.snapshot.send_if_modified(|snapshot| {
            let kymas = snapshot.kymas.as_ref();
            kymas.is_some_and(|kymas| kymas.set(kyma_label(&kyma.name_any()), labels))
        });
    }
}
