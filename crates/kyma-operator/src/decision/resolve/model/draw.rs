//! Random actions.

use proptest::prelude::*;

use super::pair::{Access, ForeignEdit, PairEvent, Side};
use super::{Action, CHANNELS, Choice, MODULES, Upgrades, VERSIONS};

// Prefers one module, so that actions interact.
fn module() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(MODULES[0]), 1 => Just(MODULES[1])]
}

/// Generates an action; actions of users more often.
pub(crate) fn action() -> impl Strategy<Value = Action> {
    let version = || prop::sample::select(&VERSIONS[..]);
    let channel = || prop::sample::select(&CHANNELS[..]);
    let choice = prop_oneof![
        Just(Choice::Default),
        channel().prop_map(Choice::Channel),
        version().prop_map(Choice::Pin),
    ];
    let upgrades =
        prop_oneof![Just(Upgrades::Automatic), prop::option::of(version()).prop_map(Upgrades::Manual),];
    prop_oneof![
        6 => (module(), choice).prop_map(|(module, choice)| Action::Choose(module, choice)),
        3 => module().prop_map(Action::Disable),
        2 => (module(), any::<bool>()).prop_map(|(module, is)| Action::Manage(module, is)),
        2 => (module(), upgrades).prop_map(|(module, upgrades)| Action::Upgrades(module, upgrades)),
        1 => channel().prop_map(Action::Follow),
        4 => (module(), channel(), version()).prop_map(|(module, channel, version)| Action::Move(module, channel, version)),
        1 => (module(), channel()).prop_map(|(module, channel)| Action::Close(module, channel)),
        2 => (module(), version(), any::<bool>()).prop_map(|(module, version, is)| Action::Template(module, version, is)),
        1 => (module(), any::<bool>()).prop_map(|(module, is)| Action::Release(module, is)),
        1 => (module(), version(), any::<bool>()).prop_map(|(module, version, is)| Action::Beta(module, version, is)),
        1 => any::<bool>().prop_map(Action::Tester),
        3 => any::<bool>().prop_map(Action::Pause),
        2 => (module(), prop::option::of(channel())).prop_map(|(module, channel)| Action::Govern(module, channel)),
        2 => (module(), any::<bool>()).prop_map(|(module, is)| Action::Use(module, is)),
        4 => module().prop_map(Action::Report),
        1 => Just(Action::Restart),
    ]
}

/// Generates an event of a Kyma and its target, none of the whole hub.
pub(crate) fn event() -> impl Strategy<Value = PairEvent> {
    let access = prop::sample::select(vec![Access::First, Access::Second, Access::Wrong, Access::Missing]);
    let edit = prop_oneof![
        Just(ForeignEdit::Marks),
        Just(ForeignEdit::Status),
        module().prop_map(ForeignEdit::DeletionPolicy)
    ];
    prop_oneof![
        20 => action().prop_map(PairEvent::Act),
        2 => any::<bool>().prop_map(PairEvent::Network),
        3 => access.prop_map(PairEvent::Access),
        2 => Just(PairEvent::DeleteKyma),
        2 => module().prop_map(PairEvent::DeleteComponent),
        2 => edit.prop_map(PairEvent::Edit),
        2 => Just(PairEvent::BackUp(Side::Target)),
        2 => Just(PairEvent::Restore(Side::Target)),
    ]
}
