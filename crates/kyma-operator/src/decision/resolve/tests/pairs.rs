//! Compares decisions with the model, for random sequences of events on a hub and a remote target.

use kyma_targets::{
    Claim, FencingGeneration, KymaId, LiveIdentity, Mismatch, Stamp, TargetRecord, Verdict, adopt, compare,
};
use proptest::prelude::*;

use super::super::model::draw;
use super::super::model::pair::{ForeignEdit, HubAuthority, Pair, PairEvent, Side};
use super::super::model::{Action, World};
use super::sequences::{Hub, of_hub, of_model};
use super::*;

const TARGET: &str = "target";

/// State of the hub.
#[derive(Debug, Clone)]
struct HubSide {
    hub: Hub,
    recorded: TargetRecord,
    edited: BTreeSet<&'static str>,
}

/// Hub and target in the product's types.
struct ProductPair {
    hub_side: HubSide,
    stamp: Option<Stamp>,
    saved_hub_side: Option<HubSide>,
    saved_stamp: Option<Stamp>,
    marks: u32,
}

impl ProductPair {
    fn new() -> Self {
        let recorded = TargetRecord::default();
        let hub_side = HubSide { hub: Hub::default(), recorded, edited: BTreeSet::new() };
        Self { hub_side, stamp: None, saved_hub_side: None, saved_stamp: None, marks: 0 }
    }

    fn found(&self) -> LiveIdentity {
        LiveIdentity { target_uid: TARGET.to_owned(), stamp: self.stamp.clone(), stamp_version: None }
    }

    /// Applies an event, apart from selections and offers, which the model keeps.
    fn happens(&mut self, event: PairEvent, before: &Pair) {
        match event {
            PairEvent::Act(Action::Report(module)) if before.authority() == HubAuthority::Writes => {
                self.hub_side.hub.report(module);
            }
            PairEvent::DeleteComponent(module) if before.hub.has(module) => {
                self.hub_side.hub.delete_component(module);
            }
            PairEvent::Edit(ForeignEdit::DeletionPolicy(module)) if before.hub.has(module) => {
                self.hub_side.edited.insert(module);
            }
            PairEvent::BackUp(Side::Hub) => self.saved_hub_side = Some(self.hub_side.clone()),
            PairEvent::BackUp(Side::Target) => self.saved_stamp.clone_from(&self.stamp),
            PairEvent::Restore(Side::Hub) => {
                self.hub_side = self.saved_hub_side.clone().unwrap_or(self.hub_side.clone());
            }
            PairEvent::Restore(Side::Target) if before.has_saved(Side::Target) => {
                self.stamp.clone_from(&self.saved_stamp);
            }
            PairEvent::Adopt if before.authority() != HubAuthority::Unreachable => {
                if let Some((recorded, stamp)) = adopt(&claim(), &self.hub_side.recorded, &self.found()) {
                    (self.hub_side.recorded, self.stamp) = (recorded, Some(stamp));
                }
            }
            _ => {}
        }
    }

    /// Runs a pass if this hub may write to the target. Returns whether it did.
    fn pass(&mut self, world: &World) -> bool {
        let write = match compare(&claim(), &self.hub_side.recorded, &self.found()) {
            Verdict::Match { write } => write,
            Verdict::FirstContact { record, write } => {
                self.hub_side.recorded = record;
                write
            }
            Verdict::StampMismatch(Mismatch::LaterState) => return false,
            other => panic!("{other:?}"),
        };
        self.stamp = write.or(self.stamp.take());
        self.hub_side.hub.settle(world);
        let edited = std::mem::take(&mut self.hub_side.edited);
        let is_put_right = edited.into_iter().any(|module| self.hub_side.hub.keeps(module));
        if self.hub_side.hub.has_ordered() || is_put_right {
            self.advance_fencing_generation();
        }
        true
    }

    fn advance_fencing_generation(&mut self) {
        self.marks += 1;
        let known = self
            .hub_side
            .recorded
            .fencing_generation
            .iter()
            .chain(self.stamp.iter().filter_map(|stamp| stamp.fencing_generation.as_ref()));
        let fencing_generation = Some(FencingGeneration::after(known, format!("{:x}", self.marks)));
        self.hub_side.recorded.fencing_generation.clone_from(&fencing_generation);
        self.stamp = self.stamp.take().map(|stamp| Stamp { fencing_generation, ..stamp });
    }
}

fn claim() -> Claim {
    let text = str::to_owned;
    let kyma = KymaId { namespace: text("kcp-system"), name: text("sample"), uid: text("kyma") };
    Claim { hub_uid: text("hub"), kyma: Some(kyma), operator: text("kyma-operator"), version: text("1.0.0") }
}

/// Generates an event of a Kyma, its target or the hub.
fn event() -> impl Strategy<Value = PairEvent> {
    prop_oneof![
        12 => draw::event(),
        1 => Just(PairEvent::BackUp(Side::Hub)),
        1 => Just(PairEvent::Restore(Side::Hub)),
        1 => Just(PairEvent::Adopt),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_decisions_and_model_agree_for_random_events(
        events in prop::collection::vec(event(), 1..32)
    ) {
        let (mut pair, mut real) = (Pair::new(), ProductPair::new());
        prop_assert!(real.pass(&pair.hub.world), "the first contact");
        for event in events {
            real.happens(event, &pair);
            pair.act(event);
            if pair.authority() != HubAuthority::Unreachable {
                let is_ours = real.pass(&pair.hub.world);
                prop_assert_eq!(is_ours, pair.authority() == HubAuthority::Writes, "after {:?}", event);
            }
            prop_assert_eq!(of_hub(&real.hub_side.hub), of_model(&pair.hub.world), "after {:?}", event);
        }
    }
}
