//! Dependency graph of components: unmet dependencies, cycles, components that block a removal, and components to
//! requeue. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use kyma_controller::Index;

use super::view::{DependencyTarget, Kind, Node, Readiness, Requirement, View};

/// State of the list of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListState {
    /// The first list is in progress.
    Listing,
    /// The list is complete.
    Listed,
    /// The hub does not serve the kind, or this operator may not read it.
    Refused(String),
}

/// Reason that a dependency is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnmetReason {
    Absent,
    Deleting,
    NotReady,
    /// The expression is false.
    Denied,
    /// The expression cannot be evaluated.
    Unclear,
    /// The dependency was observed before this expression was added: its object has to be read.
    NotEvaluated(Node, String),
    /// The dependency is a module, and the dependent component belongs to no Kyma.
    NoKyma,
    /// The dependency belongs to another Kyma.
    OfAnotherKyma,
    /// The kind of the dependency cannot be read.
    Refused(String),
    /// The kind of the dependency is not listed yet.
    Listing,
}

/// A dependency that is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnmetDependency {
    /// Name for messages.
    pub(crate) name: String,
    pub(crate) why: UnmetReason,
}

/// All observed components of the operator's own kind and of the kinds that components depend on.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    views: HashMap<Node, View>,
    needed: Index<DependencyTarget, Node>,
    modules: HashMap<DependencyTarget, BTreeSet<Node>>,
    list_states: HashMap<Kind, ListState>,
    /// The kinds that components depend on, each with the number of references for each API version.
    kinds: BTreeMap<Kind, BTreeMap<String, usize>>,
    /// Whether a kind or version was added or removed since the last [`Graph::new_kinds`].
    kinds_changed: bool,
}

impl Graph {
    /// Adds or updates a component. Returns the components to requeue.
    pub(crate) fn set(&mut self, node: &Node, view: View) -> BTreeSet<Node> {
        let before = self.views.get(node);
        if before == Some(&view) {
            return BTreeSet::new();
        }
        let readiness_changed = before.is_none_or(|before| !before.offers_the_same(&view));
        let needs_changed = before.is_none_or(|before| before.needs != view.needs);
        let module_before = before.and_then(View::as_module);
        let mut affected = self.affected(node, readiness_changed, needs_changed);
        if needs_changed {
            let needs = before.map(|before| before.needs.clone()).unwrap_or_default();
            self.count_kinds(&view.needs, &needs);
        }
        if let Some(module) = module_before {
            self.forget_module(&module, node);
        }
        if let Some(module) = view.as_module() {
            self.modules.entry(module).or_default().insert(node.clone());
        }
        self.needed.set(node.clone(), view.needs.iter().map(|need| need.on.clone()));
        self.views.insert(node.clone(), view);
        affected.extend(self.affected(node, readiness_changed, needs_changed));
        affected
    }

    /// Removes a component. Returns the components to requeue.
    pub(crate) fn remove(&mut self, node: &Node) -> BTreeSet<Node> {
        let affected = self.affected(node, true, true);
        if let Some(view) = self.views.remove(node) {
            if let Some(module) = view.as_module() {
                self.forget_module(&module, node);
            }
            self.count_kinds(&[], &view.needs);
        }
        self.needed.remove(node);
        affected
    }

    /// Removes all components of a kind that a complete list lacks. Returns the components to requeue.
    pub(crate) fn listed(&mut self, kind: &Kind, names: &BTreeSet<String>) -> BTreeSet<Node> {
        let gone = self.views.keys().filter(|node| node.kind == *kind && !names.contains(&node.name));
        let gone: Vec<Node> = gone.cloned().collect();
        let mut affected = self.set_list_state(kind, ListState::Listed);
        affected.extend(gone.iter().flat_map(|node| self.remove(node)));
        affected
    }

    /// Sets the state of the list of a kind. Returns the components to requeue.
    pub(crate) fn set_list_state(&mut self, kind: &Kind, state: ListState) -> BTreeSet<Node> {
        let is_news = self.list_states.get(kind) != Some(&state);
        self.list_states.insert(kind.clone(), state);
        let concerned = |(node, view): (&Node, &View)| {
            let names = view.needs.iter().any(|need| match &need.on {
                DependencyTarget::Component(node) => node.kind == *kind,
                DependencyTarget::Module { .. } => true,
                DependencyTarget::ModuleWithoutKyma(_) => false,
            });
            (names || view.is_deleting).then(|| node.clone())
        };
        if is_news { self.views.iter().filter_map(concerned).collect() } else { BTreeSet::new() }
    }

    /// Drops a kind that no component depends on any more.
    pub(crate) fn drop_kind(&mut self, kind: &Kind) -> BTreeSet<Node> {
        let affected = self.listed(kind, &BTreeSet::new());
        self.list_states.remove(kind);
        affected
    }

    /// Adds results of expressions that were added after the component was observed.
    pub(crate) fn add_results(&mut self, node: &Node, judged: BTreeMap<String, Readiness>) {
        if let Some(view) = self.views.get_mut(node) {
            for (expression, verdict) in judged {
                view.judged.entry(expression).or_insert(verdict);
            }
        }
    }

    /// Returns the results of these expressions for the previous state of a component with the same uid.
    pub(crate) fn results(
        &self,
        node: &Node,
        uid: &str,
        expressions: &BTreeSet<String>,
    ) -> BTreeMap<String, Readiness> {
        let view = self.views.get(node).filter(|view| view.uid == uid);
        let judged = view.into_iter().flat_map(|view| &view.judged);
        let wanted = judged.filter(|(expression, _)| expressions.contains(*expression));
        wanted.map(|(expression, verdict)| (expression.clone(), *verdict)).collect()
    }

    /// Sets the results of expressions for the latest state of a component. Returns the components to requeue.
    pub(crate) fn set_results(
        &mut self,
        node: &Node,
        uid: &str,
        judged: BTreeMap<String, Readiness>,
    ) -> BTreeSet<Node> {
        let Some(view) = self.views.get(node).filter(|view| view.uid == uid) else { return BTreeSet::new() };
        let mut view = view.clone();
        view.judged.extend(judged);
        self.set(node, view)
    }

    /// Returns the expressions of other components about this component or module.
    pub(crate) fn expressions(&self, node: &Node, module: Option<&DependencyTarget>) -> BTreeSet<String> {
        let on = DependencyTarget::Component(node.clone());
        let dependents = std::iter::once(&on).chain(module).flat_map(|on| {
            let dependents = self.needed.dependents(on).filter_map(|node| self.views.get(node));
            let needs = dependents.flat_map(|view| &view.needs).filter(move |need| need.on == *on);
            needs.filter_map(|need| need.ready.clone())
        });
        dependents.collect()
    }

    /// Returns the kinds that components depend on, with their API versions, or `None` if they are unchanged since
    /// the last call.
    pub(crate) fn new_kinds(&mut self) -> Option<BTreeMap<Kind, BTreeSet<String>>> {
        if !std::mem::take(&mut self.kinds_changed) {
            return None;
        }
        let kinds = self.kinds.iter();
        Some(kinds.map(|(kind, versions)| (kind.clone(), versions.keys().cloned().collect())).collect())
    }

    /// Updates the reference counts of kinds for added and removed needs.
    fn count_kinds(&mut self, came: &[Requirement], went: &[Requirement]) {
        for (kind, need) in came.iter().filter_map(|need| Some((kind_of(need)?, need))) {
            let count = self.kinds.entry(kind).or_default().entry(need.version.clone()).or_default();
            *count += 1;
            self.kinds_changed |= *count == 1;
        }
        for (kind, need) in went.iter().filter_map(|need| Some((kind_of(need)?, need))) {
            let Some(versions) = self.kinds.get_mut(&kind) else { continue };
            let Some(count) = versions.get_mut(&need.version) else { continue };
            *count -= 1;
            if *count == 0 {
                versions.remove(&need.version);
                self.kinds_changed = true;
            }
            if versions.is_empty() {
                self.kinds.remove(&kind);
            }
        }
    }

    /// Returns the unmet ones of these needs.
    pub(crate) fn unmet(&self, kyma: Option<&str>, needs: &[Requirement]) -> Vec<UnmetDependency> {
        let unmet = needs.iter().filter_map(|need| {
            let why = self.why_not(kyma, need)?;
            Some(UnmetDependency { name: need.name.clone(), why })
        });
        unmet.collect()
    }

    /// Returns the shortest cycle through a component with these needs, starting with the component.
    pub(crate) fn cycle(&self, node: &Node, needs: &[Requirement]) -> Option<Vec<Node>> {
        let mut from: HashMap<Node, Node> = HashMap::new();
        let mut open = VecDeque::new();
        let steps = |at: &Node, needs: &[Requirement]| {
            let mut steps: Vec<(Node, Node)> = vec![];
            for target in needs.iter().flat_map(|need| self.resolve(&need.on)) {
                steps.push((at.clone(), target.clone()));
            }
            steps
        };
        open.extend(steps(node, needs));
        while let Some((before, at)) = open.pop_front() {
            if at == *node {
                return Some(cycle_path(&from, node, before));
            }
            if from.contains_key(&at) {
                continue;
            }
            from.insert(at.clone(), before);
            if let Some(view) = self.views.get(&at) {
                open.extend(steps(&at, &view.needs));
            }
        }
        None
    }

    /// Returns the components that depend on this one and block its removal, and whether each is being deleted. A
    /// component that this one also depends on does not block it: in a cycle no removal could start.
    ///
    /// # Errors
    /// The list of a kind is under way, so there may be more.
    pub(crate) fn holders(&self, node: &Node) -> Result<BTreeMap<Node, bool>, Kind> {
        if let Some((kind, _)) = self.list_states.iter().find(|(_, state)| **state == ListState::Listing) {
            return Err(kind.clone());
        }
        let Some(view) = self.views.get(node) else { return Ok(BTreeMap::new()) };
        let needed = self.reaches(node);
        let holders = self.direct_dependents(node).into_iter().filter(|holder| !needed.contains(holder));
        let holders = holders.filter_map(|holder| {
            let held = self.views.get(&holder)?;
            (held.kyma == view.kyma).then_some((holder, held.is_deleting))
        });
        Ok(holders.collect())
    }

    fn why_not(&self, kyma: Option<&str>, need: &Requirement) -> Option<UnmetReason> {
        let kind = match &need.on {
            DependencyTarget::Component(node) => node.kind.clone(),
            DependencyTarget::Module { .. } => Kind::helm(),
            DependencyTarget::ModuleWithoutKyma(_) => return Some(UnmetReason::NoKyma),
        };
        // The cached components of this kind may be outdated.
        if let Some(ListState::Refused(why)) = self.list_states.get(&kind) {
            return Some(UnmetReason::Refused(why.clone()));
        }
        let meant = self.resolve(&need.on);
        let known = meant.iter().filter_map(|node| self.views.get(*node).map(|view| (*node, view)));
        let mut whys = vec![];
        for (node, view) in known {
            whys.push(reason(kyma, node, view, need.ready.as_ref())?);
        }
        // Of several components for a module, as during a replacement, the first that is not being deleted gives the
        // reason.
        let closest = whys.into_iter().find(|why| *why != UnmetReason::Deleting);
        closest.or_else(|| (!self.resolve(&need.on).is_empty()).then_some(UnmetReason::Deleting)).or_else(
            || {
                Some(match self.list_states.get(&kind) {
                    Some(ListState::Listed) => UnmetReason::Absent,
                    _ => UnmetReason::Listing,
                })
            },
        )
    }

    /// Returns the existing components that the dependency refers to.
    fn resolve(&self, on: &DependencyTarget) -> Vec<&Node> {
        match on {
            DependencyTarget::Component(node) => {
                self.views.get_key_value(node).map(|(node, _)| node).into_iter().collect()
            }
            DependencyTarget::Module { .. } => self.modules.get(on).into_iter().flatten().collect(),
            DependencyTarget::ModuleWithoutKyma(_) => vec![],
        }
    }

    /// Returns all direct and transitive dependencies of a component, itself included if it is in a cycle.
    fn reaches(&self, node: &Node) -> HashSet<Node> {
        reachable_from(node, |at| {
            let needs = self.views.get(at).into_iter().flat_map(|view| &view.needs);
            needs.flat_map(|need| self.resolve(&need.on)).cloned().collect()
        })
    }

    /// Returns the direct dependents of a component or of its module.
    fn direct_dependents(&self, node: &Node) -> Vec<Node> {
        let module = self.views.get(node).and_then(View::as_module);
        let named = std::iter::once(DependencyTarget::Component(node.clone())).chain(module);
        named.flat_map(|on| self.needed.dependents(&on).cloned().collect::<Vec<_>>()).collect()
    }

    /// Returns the components to requeue. If the state that dependents see changes (`readiness_changed`): its
    /// direct dependents. If its dependencies change (`needs_changed`): all transitive dependents, since a cycle may have
    /// appeared or vanished.
    /// In any case: its dependencies that are being deleted, since their removal waits for it.
    fn affected(&self, node: &Node, readiness_changed: bool, needs_changed: bool) -> BTreeSet<Node> {
        let mut affected = BTreeSet::new();
        if needs_changed {
            affected.extend(reachable_from(node, |at| self.direct_dependents(at)));
        } else if readiness_changed {
            affected.extend(self.direct_dependents(node));
        }
        let needs = self.views.get(node).into_iter().flat_map(|view| &view.needs);
        let needed = needs.flat_map(|need| self.resolve(&need.on));
        let going = needed.filter(|node| self.views.get(*node).is_some_and(|view| view.is_deleting));
        affected.extend(going.cloned());
        affected
    }

    fn forget_module(&mut self, module: &DependencyTarget, node: &Node) {
        if let Some(nodes) = self.modules.get_mut(module) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.modules.remove(module);
            }
        }
    }
}

/// Returns the kind of a need.
fn kind_of(need: &Requirement) -> Option<Kind> {
    match &need.on {
        DependencyTarget::Component(node) => Some(node.kind.clone()),
        DependencyTarget::Module { .. } => Some(Kind::helm()),
        DependencyTarget::ModuleWithoutKyma(_) => None,
    }
}

/// Returns why an existing component is not ready, or `None` if it is ready.
fn reason(kyma: Option<&str>, node: &Node, view: &View, ready: Option<&String>) -> Option<UnmetReason> {
    if view.kyma.as_deref() != kyma {
        return Some(UnmetReason::OfAnotherKyma);
    }
    if view.is_deleting {
        return Some(UnmetReason::Deleting);
    }
    let Some(expression) = ready else { return (!view.is_ready).then_some(UnmetReason::NotReady) };
    match view.judged.get(expression) {
        Some(Readiness::Ready) => None,
        Some(Readiness::NotReady) => Some(UnmetReason::Denied),
        Some(Readiness::Unclear) => Some(UnmetReason::Unclear),
        None => Some(UnmetReason::NotEvaluated(node.clone(), expression.clone())),
    }
}

/// Returns all nodes that are reachable in one or more steps.
fn reachable_from(start: &Node, next: impl Fn(&Node) -> Vec<Node>) -> HashSet<Node> {
    let mut found = HashSet::new();
    let mut open = next(start);
    while let Some(node) = open.pop() {
        if !found.contains(&node) {
            open.extend(next(&node));
            found.insert(node);
        }
    }
    found
}

/// Returns the path from `start` to `end`, both included, followed by `start`.
fn cycle_path(from: &HashMap<Node, Node>, start: &Node, end: Node) -> Vec<Node> {
    let mut path = vec![start.clone()];
    let mut at = end;
    while at != *start {
        path.push(at.clone());
        let Some(before) = from.get(&at) else { break };
        at = before.clone();
    }
    path.push(start.clone());
    path.reverse();
    path
}

#[cfg(test)]
impl Graph {
    /// Reports whether no component has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        let indexes = self.modules.len() + self.kinds.len() + self.needed.dependencies();
        self.views.is_empty() && indexes == 0
    }
}

#[cfg(test)]
#[path = "graph/tests.rs"]
mod tests;
