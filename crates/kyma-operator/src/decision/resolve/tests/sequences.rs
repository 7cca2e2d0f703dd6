//! Compares decisions with the model, for random sequences of actions.

use proptest::prelude::*;

use super::super::model::{self, Action, World, draw};
use super::*;

/// The hub's objects that result from the decisions.
#[derive(Debug, Clone, Default)]
pub(super) struct Hub {
    installed: BTreeMap<String, InstalledModule>,
    missing_components: Vec<MissingComponent>,
    /// Whether a change was requested since [`Self::has_ordered`] was last called.
    has_ordered: bool,
}

impl Hub {
    /// Runs passes and reconcilers until nothing changes.
    pub(super) fn settle(&mut self, world: &World) {
        for _ in 0..8 {
            let before = self.installed.clone();
            for resolved in self.decide(world) {
                self.carry_out(&resolved);
            }
            // A component is deleted once its module is unused; a withdrawn removal deletes and recreates it.
            self.installed
                .retain(|module, installed| !installed.leaving || world.used.contains(module.as_str()));
            if self.installed == before {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", self.installed);
    }

    fn decide(&self, world: &World) -> Vec<ResolvedModule> {
        let modules: Vec<Value> = world.chosen.written(str::to_owned);
        let selection =
            Selection::read(&json!({ "channel": world.chosen.channel, "modules": modules })).unwrap();
        let beta = (kyma_api::labels::BETA.to_owned(), "true".to_owned());
        let labels: BTreeMap<String, String> = world.tester.then_some(beta).into_iter().collect();
        let governs = |(module, channel): (&&str, &&str)| {
            (
                (*module).to_owned(),
                json!({ "module": module, "overrides": { "module": { "channel": channel } } }),
            )
        };
        let configs = configs(world.governed.iter().map(governs).collect());
        let recorded =
            self.missing_components.iter().map(|missing| (missing.module.clone(), missing.version.clone()));
        let recorded: BTreeMap<String, String> = recorded.collect();
        resolve(&Inputs {
            labels: &labels,
            channel: &selection.channel,
            entries: &govern_all(&configs, &labels, &selection),
            leaving: &govern_leaving(&configs, &labels, &self.installed),
            configs: &configs,
            missing_configs: &BTreeMap::new(),
            contents: &TemplateRecords::default(),
            recorded: &recorded,
            installed: &self.installed,
            catalogue: &offered(world),
            policy: &super::super::Policy::default(),
            upgrades_paused: world.paused.then_some("paused"),
            missing_components: &self.missing_components,
            maintenance: &Maintenance::default(),
            skips_windows: false,
            offered: &BTreeMap::new(),
            now: NOW.parse().unwrap(),
        })
    }

    /// Applies a decision, as plan and apply do.
    fn carry_out(&mut self, resolved: &ResolvedModule) {
        let module = &resolved.module;
        let before = self.installed.get(module).cloned();
        match &resolved.decision {
            Decision::Install(install)
            | Decision::KeepVersion(install, _)
            | Decision::Await(Some(install), _) => {
                let held = self.installed.remove(module);
                // Withdrawn: its reconciler leaves everything on the target, and the next pass creates another one.
                if held.as_ref().is_none_or(|held| !held.leaving) {
                    self.installed.insert(module.clone(), have(install, held));
                } else {
                    self.record_missing(module, &install.version, install.channel.clone());
                }
            }
            Decision::UpgradeDuringRemoval(install) => {
                let ordered = Some(install.version.clone());
                self.installed.entry(module.clone()).and_modify(|held| held.desired_version = ordered);
            }
            Decision::Remove { .. } => {
                self.installed.entry(module.clone()).and_modify(|held| held.leaving = true);
            }
            Decision::Unmanage => drop(self.installed.remove(module)),
            Decision::Keep(_) | Decision::Await(None, _) => {
                if before.as_ref().is_some_and(|held| held.leaving) {
                    self.delete_component(module);
                }
            }
            Decision::Refuse(_) => {}
            Decision::FinishRemoval(install, _) => {
                self.installed
                    .insert(module.clone(), InstalledModule { leaving: true, ..have(install, None) });
            }
        }
        let is_order = !matches!(resolved.decision, Decision::Unmanage);
        self.has_ordered |= is_order && self.installed.get(module) != before.as_ref();
        self.record_status(resolved);
    }

    /// Records the status of a module without a component.
    fn record_status(&mut self, resolved: &ResolvedModule) {
        let module = &resolved.module;
        let is_unmanaged = matches!(resolved.decision, Decision::Unmanage);
        if self.installed.contains_key(module) || is_unmanaged {
            self.missing_components.retain(|missing| missing.module != *module);
        }
        let is_refused = matches!(resolved.decision, Decision::Refuse(_));
        for missing in
            self.missing_components.iter_mut().filter(|missing| is_refused && missing.module == *module)
        {
            missing.channel.clone_from(&resolved.subscription.channel);
        }
    }

    pub(super) fn report(&mut self, module: &str) {
        self.installed
            .entry(module.to_owned())
            .and_modify(|held| held.running = held.desired_version.clone());
        self.installed.retain(|_, held| held.desired_version.is_some());
    }

    /// Deletes a component.
    pub(super) fn delete_component(&mut self, module: &str) {
        let Some(held) = self.installed.remove(module) else { return };
        self.record_missing(module, &held.desired_version.unwrap_or_default(), held.channel);
    }

    /// Records the version of a module without a component, as the status does.
    fn record_missing(&mut self, module: &str, version: &str, channel: Option<String>) {
        self.missing_components.push(MissingComponent {
            module: module.to_owned(),
            version: version.to_owned(),
            channel,
            kind: ComponentKind::helm(),
            mandatory: false,
        });
    }

    /// Reports whether the module has a component that is not to be removed.
    pub(super) fn keeps(&self, module: &str) -> bool {
        self.installed.get(module).is_some_and(|held| !held.leaving)
    }

    /// Returns whether a change was requested since the last call.
    pub(super) fn has_ordered(&mut self) -> bool {
        std::mem::take(&mut self.has_ordered)
    }
}

/// Returns the component of an install.
fn have(install: &Install, held: Option<InstalledModule>) -> InstalledModule {
    let new = || installed(InstalledCase::Running(install.version.clone())).unreported();
    InstalledModule {
        desired_version: Some(install.version.clone()),
        channel: install.channel.clone(),
        ..held.unwrap_or_else(new)
    }
}

impl InstalledModule {
    fn unreported(self) -> Self {
        Self { running: None, ..self }
    }
}

fn offered(world: &World) -> Catalogue {
    let mut found = Catalogue::default();
    for (module, offer) in &world.offers {
        for version in &offer.templates {
            let audience = Audience { beta: offer.beta.contains(version), ..Audience::default() };
            found.apply_template(Template {
                audience,
                ..template(module, TemplateCase::Version((*version).to_owned()))
            });
        }
        if offer.is_there() {
            let channels =
                offer.channels.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned()));
            found.apply_release(Release {
                module: (*module).to_owned(),
                channels: channels.collect(),
                ..Release::default()
            });
        }
    }
    found
}

/// Returns module, requested and running version, channel, and whether it is being removed, in a common format.
pub(super) fn of_model(world: &World) -> Vec<String> {
    let line = |(module, held): (&&str, &model::InstalledModule)| {
        format!("{module} {} {:?} {:?} {}", held.desired_version, held.running, held.channel, held.leaving)
    };
    world.installed.iter().map(line).collect()
}

pub(super) fn of_hub(hub: &Hub) -> Vec<String> {
    let line = |(module, held): (&String, &InstalledModule)| {
        let (running, channel) = (held.running.as_deref(), held.channel.as_deref());
        format!(
            "{module} {} {running:?} {channel:?} {}",
            held.desired_version.as_deref().unwrap_or("-"),
            held.leaving
        )
    };
    hub.installed.iter().map(line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decisions_and_model_agree_after_every_action(actions in prop::collection::vec(draw::action(), 1..16)) {
        let (mut world, mut hub) = (World::new(), Hub::default());
        for action in actions {
            let before = world.clone();
            world.act(action);
            if let Action::Report(module) = action {
                hub.report(module);
            }
            hub.settle(&world);
            prop_assert_eq!(of_hub(&hub), of_model(&world), "after {:?}", action);
            nothing_is_lost(&before, &world, action)?;
        }
    }
}

/// Checks what holds under all rules: only a user's action removes, and no version is downgraded.
fn nothing_is_lost(before: &World, after: &World, action: Action) -> Result<(), TestCaseError> {
    for (module, held) in &before.installed {
        let is_wished = matches!(action, Action::Disable(of) | Action::Manage(of, _) | Action::Choose(of, _) if of == *module)
            || held.leaving;
        let Some(now) = after.installed.get(module) else {
            prop_assert!(is_wished, "{} went after {:?}", module, action);
            continue;
        };
        let versions = held.running.map(|running| version::compare(now.desired_version, running));
        prop_assert!(
            is_wished || versions.flatten().is_none_or(std::cmp::Ordering::is_ge),
            "{} went back",
            module
        );
    }
    Ok(())
}
