//! Compares decisions with the model, for random sequences of events on a hub and a remote target.

use kyma_targets::{
    Claim, KymaId, LiveIdentity, Mismatch, Stamp, TargetRecord, Turn, Verdict, adopt, compare,
};
use proptest::prelude::*;

use super::super::model::draw;
use super::super::model::pair::{Contact, Deed, Meddling, Pair, Side};
use super::super::model::{Action, World};
use super::sequences::{Hub, of_hub, of_model};
use super::*;

const TARGET: &str = "target";

/// State of the hub.
#[derive(Debug, Clone)]
struct Near {
    hub: Hub,
    recorded: TargetRecord,
    edited: BTreeSet<&'static str>,
}

/// Hub and target in the product's types.
struct Real {
    near: Near,
    stamp: Option<Stamp>,
    saved_near: Option<Near>,
    saved_stamp: Option<Stamp>,
    marks: u32,
}

impl Real {
    fn new() -> Self {
        let recorded = TargetRecord::default();
        let near = Near { hub: Hub::default(), recorded, edited: BTreeSet::new() };
        Self { near, stamp: None, saved_near: None, saved_stamp: None, marks: 0 }
    }

    fn found(&self) -> LiveIdentity {
        LiveIdentity { target_uid: TARGET.to_owned(), stamp: self.stamp.clone(), stamp_version: None }
    }

    /// Applies an event, apart from selections and offers, which the model keeps.
    fn happens(&mut self, deed: Deed, before: &Pair) {
        match deed {
            Deed::Act(Action::Report(module)) if before.contact() == Contact::Open => {
                self.near.hub.report(module);
            }
            Deed::Lose(module) if before.hub.has(module) => self.near.hub.lose(module),
            Deed::Meddle(Meddling::Order(module)) if before.hub.has(module) => {
                self.near.edited.insert(module);
            }
            Deed::Save(Side::Hub) => self.saved_near = Some(self.near.clone()),
            Deed::Save(Side::Target) => self.saved_stamp.clone_from(&self.stamp),
            Deed::GoBack(Side::Hub) => self.near = self.saved_near.clone().unwrap_or(self.near.clone()),
            Deed::GoBack(Side::Target) if before.has_saved(Side::Target) => {
                self.stamp.clone_from(&self.saved_stamp);
            }
            Deed::Adopt if before.contact() != Contact::None => {
                if let Some((recorded, stamp)) = adopt(&claim(), &self.near.recorded, &self.found()) {
                    (self.near.recorded, self.stamp) = (recorded, Some(stamp));
                }
            }
            _ => {}
        }
    }

    /// Runs a pass if this hub may write to the target. Returns whether it did.
    fn pass(&mut self, world: &World) -> bool {
        let write = match compare(&claim(), &self.near.recorded, &self.found()) {
            Verdict::Match { write } => write,
            Verdict::FirstContact { record, write } => {
                self.near.recorded = record;
                write
            }
            Verdict::StampMismatch(Mismatch::LaterState) => return false,
            other => panic!("{other:?}"),
        };
        self.stamp = write.or(self.stamp.take());
        self.near.hub.settle(world);
        let edited = std::mem::take(&mut self.near.edited);
        let is_put_right = edited.into_iter().any(|module| self.near.hub.keeps(module));
        if self.near.hub.has_ordered() || is_put_right {
            self.take_turn();
        }
        true
    }

    fn take_turn(&mut self) {
        self.marks += 1;
        let known =
            self.near.recorded.turn.iter().chain(self.stamp.iter().filter_map(|stamp| stamp.turn.as_ref()));
        let turn = Some(Turn::after(known, format!("{:x}", self.marks)));
        self.near.recorded.turn.clone_from(&turn);
        self.stamp = self.stamp.take().map(|stamp| Stamp { turn, ..stamp });
    }
}

fn claim() -> Claim {
    let text = str::to_owned;
    let kyma = KymaId { namespace: text("kcp-system"), name: text("sample"), uid: text("kyma") };
    Claim { hub_uid: text("hub"), kyma: Some(kyma), operator: text("kyma-operator"), version: text("1.0.0") }
}

/// Generates an event of a Kyma, its target or the hub.
fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        12 => draw::deed(),
        1 => Just(Deed::Save(Side::Hub)),
        1 => Just(Deed::GoBack(Side::Hub)),
        1 => Just(Deed::Adopt),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_decisions_and_model_agree_after_whatever_happens_to_hub_and_target(
        deeds in prop::collection::vec(deed(), 1..32)
    ) {
        let (mut pair, mut real) = (Pair::new(), Real::new());
        prop_assert!(real.pass(&pair.hub.world), "the first contact");
        for deed in deeds {
            real.happens(deed, &pair);
            pair.act(deed);
            if pair.contact() != Contact::None {
                let is_ours = real.pass(&pair.hub.world);
                prop_assert_eq!(is_ours, pair.contact() == Contact::Open, "after {:?}", deed);
            }
            prop_assert_eq!(of_hub(&real.near.hub), of_model(&pair.hub.world), "after {:?}", deed);
        }
    }
}
