//! Who depends on whom: what is not ready, which circles there are, what a removal waits for, and who has to look
//! again. Pure; it reads nothing but what was put in.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::view::{Kind, Need, Node, On, Verdict, View};
use crate::Index;

/// What is known of all objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A list is under way, the first one.
    Listing,
    /// All are known.
    Listed,
    /// The hub does not serve the kind, or this operator may not read it.
    Refused(String),
}

/// Why a dependency is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Absent,
    Deleting,
    NotReady,
    /// The expression is false.
    Denied,
    /// The expression cannot be judged.
    Unclear,
    /// It was seen before somebody had this expression: its object has to be read.
    Unjudged(Node, String),
    /// A module is meant, and the component that names it belongs to no Kyma.
    Nowhere,
    /// It belongs to another Kyma.
    OfAnotherKyma,
    /// Its kind cannot be read.
    Refused(String),
    /// Its kind is not listed yet.
    Listing,
}

/// A dependency that is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmet {
    /// As people know it.
    pub(crate) name: String,
    pub(crate) why: Why,
}

/// All components that are known, of the own kind and of those that they name.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    views: HashMap<Node, View>,
    needed: Index<On, Node>,
    modules: HashMap<On, BTreeSet<Node>>,
    standing: HashMap<Kind, Standing>,
    /// The kinds that components name, each with how often in which API version.
    kinds: BTreeMap<Kind, BTreeMap<String, usize>>,
    /// Whether a kind or version came or went since they were asked for.
    kinds_changed: bool,
}

impl Graph {
    /// A component is there, new or changed. Gives those that have to look again.
    pub(crate) fn set(&mut self, node: &Node, view: View) -> BTreeSet<Node> {
        let before = self.views.get(node);
        if before == Some(&view) {
            return BTreeSet::new();
        }
        let offers = before.is_none_or(|before| !before.offers_the_same(&view));
        let turns = before.is_none_or(|before| before.needs != view.needs);
        let module_before = before.and_then(View::as_module);
        let mut affected = self.affected(node, offers, turns);
        if turns {
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
        affected.extend(self.affected(node, offers, turns));
        affected
    }

    /// A component is gone. Gives those that have to look again.
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

    /// Only these are left of a kind after a list. Gives those that have to look again.
    pub(crate) fn listed(&mut self, kind: &Kind, names: &BTreeSet<String>) -> BTreeSet<Node> {
        let gone = self.views.keys().filter(|node| node.kind == *kind && !names.contains(&node.name));
        let gone: Vec<Node> = gone.cloned().collect();
        let mut affected = self.stands(kind, Standing::Listed);
        affected.extend(gone.iter().flat_map(|node| self.remove(node)));
        affected
    }

    /// What is known of a kind. Gives those that have to look again.
    pub(crate) fn stands(&mut self, kind: &Kind, standing: Standing) -> BTreeSet<Node> {
        let is_news = self.standing.get(kind) != Some(&standing);
        self.standing.insert(kind.clone(), standing);
        let concerned = |(node, view): (&Node, &View)| {
            let names = view.needs.iter().any(|need| match &need.on {
                On::Component(node) => node.kind == *kind,
                On::Module { .. } => true,
                On::Nowhere(_) => false,
            });
            (names || view.is_deleting).then(|| node.clone())
        };
        if is_news { self.views.iter().filter_map(concerned).collect() } else { BTreeSet::new() }
    }

    /// Nobody names a kind any more.
    pub(crate) fn drop_kind(&mut self, kind: &Kind) -> BTreeSet<Node> {
        let affected = self.listed(kind, &BTreeSet::new());
        self.standing.remove(kind);
        affected
    }

    /// A component was judged by an expression that nobody had when it was seen.
    pub(crate) fn judged(&mut self, node: &Node, judged: BTreeMap<String, Verdict>) {
        if let Some(view) = self.views.get_mut(node) {
            for (expression, verdict) in judged {
                view.judged.entry(expression).or_insert(verdict);
            }
        }
    }

    /// What these expressions said of a component in its state before, if it is the same one.
    pub(crate) fn judgements(
        &self,
        node: &Node,
        uid: &str,
        expressions: &BTreeSet<String>,
    ) -> BTreeMap<String, Verdict> {
        let view = self.views.get(node).filter(|view| view.uid == uid);
        let judged = view.into_iter().flat_map(|view| &view.judged);
        let wanted = judged.filter(|(expression, _)| expressions.contains(*expression));
        wanted.map(|(expression, verdict)| (expression.clone(), *verdict)).collect()
    }

    /// A component was judged in its latest state. Gives those that have to look again.
    pub(crate) fn rejudged(
        &mut self,
        node: &Node,
        uid: &str,
        judged: BTreeMap<String, Verdict>,
    ) -> BTreeSet<Node> {
        let Some(view) = self.views.get(node).filter(|view| view.uid == uid) else { return BTreeSet::new() };
        let mut view = view.clone();
        view.judged.extend(judged);
        self.set(node, view)
    }

    /// The expressions that others have about a component with these labels.
    pub(crate) fn expressions(&self, node: &Node, module: Option<&On>) -> BTreeSet<String> {
        let on = On::Component(node.clone());
        let dependents = std::iter::once(&on).chain(module).flat_map(|on| {
            let dependents = self.needed.dependents(on).filter_map(|node| self.views.get(node));
            let needs = dependents.flat_map(|view| &view.needs).filter(move |need| need.on == *on);
            needs.filter_map(|need| need.ready.clone())
        });
        dependents.collect()
    }

    /// Kinds that components name, with the API versions in which they do; none where that is as it was.
    pub(crate) fn new_kinds(&mut self) -> Option<BTreeMap<Kind, BTreeSet<String>>> {
        if !std::mem::take(&mut self.kinds_changed) {
            return None;
        }
        let kinds = self.kinds.iter();
        Some(kinds.map(|(kind, versions)| (kind.clone(), versions.keys().cloned().collect())).collect())
    }

    /// Counts the kinds that needs name which came, and those which went.
    fn count_kinds(&mut self, came: &[Need], went: &[Need]) {
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

    /// What of these needs is not ready.
    pub(crate) fn unmet(&self, kyma: Option<&str>, needs: &[Need]) -> Vec<Unmet> {
        let unmet = needs.iter().filter_map(|need| {
            let why = self.why_not(kyma, need)?;
            Some(Unmet { name: need.name.clone(), why })
        });
        unmet.collect()
    }

    /// The shortest circle in which a component with these needs depends on itself: it, and those on the way back.
    pub(crate) fn cycle(&self, node: &Node, needs: &[Need]) -> Option<Vec<Node>> {
        let mut from: HashMap<Node, Node> = HashMap::new();
        let mut open = VecDeque::new();
        let steps = |at: &Node, needs: &[Need]| {
            let mut steps: Vec<(Node, Node)> = vec![];
            for target in needs.iter().flat_map(|need| self.meant(&need.on)) {
                steps.push((at.clone(), target.clone()));
            }
            steps
        };
        open.extend(steps(node, needs));
        while let Some((before, at)) = open.pop_front() {
            if at == *node {
                return Some(way(&from, node, before));
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

    /// The components that depend on one and hold up its removal, and whether each is being deleted too. Those that it
    /// depends on itself do not: in a circle nobody could go.
    ///
    /// # Errors
    /// The list of a kind is under way, so there may be more.
    pub(crate) fn holders(&self, node: &Node) -> Result<BTreeMap<Node, bool>, Kind> {
        if let Some((kind, _)) = self.standing.iter().find(|(_, standing)| **standing == Standing::Listing) {
            return Err(kind.clone());
        }
        let Some(view) = self.views.get(node) else { return Ok(BTreeMap::new()) };
        let needed = self.reaches(node);
        let holders = self.direct(node).into_iter().filter(|holder| !needed.contains(holder));
        let holders = holders.filter_map(|holder| {
            let held = self.views.get(&holder)?;
            (held.kyma == view.kyma).then_some((holder, held.is_deleting))
        });
        Ok(holders.collect())
    }

    fn why_not(&self, kyma: Option<&str>, need: &Need) -> Option<Why> {
        let kind = match &need.on {
            On::Component(node) => node.kind.clone(),
            On::Module { .. } => Kind::helm(),
            On::Nowhere(_) => return Some(Why::Nowhere),
        };
        // What was seen of it before may be true no more.
        if let Some(Standing::Refused(why)) = self.standing.get(&kind) {
            return Some(Why::Refused(why.clone()));
        }
        let meant = self.meant(&need.on);
        let known = meant.iter().filter_map(|node| self.views.get(*node).map(|view| (*node, view)));
        let mut whys = vec![];
        for (node, view) in known {
            whys.push(reason(kyma, node, view, need.ready.as_ref())?);
        }
        // Of several, as while one follows another, the one that is closest says it.
        let closest = whys.into_iter().find(|why| *why != Why::Deleting);
        closest.or_else(|| (!self.meant(&need.on).is_empty()).then_some(Why::Deleting)).or_else(|| {
            Some(match self.standing.get(&kind) {
                Some(Standing::Listed) => Why::Absent,
                _ => Why::Listing,
            })
        })
    }

    /// The components that are meant, those that are there.
    fn meant(&self, on: &On) -> Vec<&Node> {
        match on {
            On::Component(node) => self.views.get_key_value(node).map(|(node, _)| node).into_iter().collect(),
            On::Module { .. } => self.modules.get(on).into_iter().flatten().collect(),
            On::Nowhere(_) => vec![],
        }
    }

    /// Everything that one depends on, directly or not, itself included where that is a circle.
    fn reaches(&self, node: &Node) -> HashSet<Node> {
        walk(node, |at| {
            let needs = self.views.get(at).into_iter().flat_map(|view| &view.needs);
            needs.flat_map(|need| self.meant(&need.on)).cloned().collect()
        })
    }

    /// Those that name a component, or the module that it is.
    fn direct(&self, node: &Node) -> Vec<Node> {
        let module = self.views.get(node).and_then(View::as_module);
        let named = std::iter::once(On::Component(node.clone())).chain(module);
        named.flat_map(|on| self.needed.dependents(&on).cloned().collect::<Vec<_>>()).collect()
    }

    /// Who has to look again: where its offer changes those that depend on it, and what waits for its end; where its
    /// dependencies change all who depend on it in turn, since a circle may have come or gone.
    fn affected(&self, node: &Node, offers: bool, turns: bool) -> BTreeSet<Node> {
        let mut affected = BTreeSet::new();
        if turns {
            affected.extend(walk(node, |at| self.direct(at)));
        } else if offers {
            affected.extend(self.direct(node));
        }
        let needs = self.views.get(node).into_iter().flat_map(|view| &view.needs);
        let needed = needs.flat_map(|need| self.meant(&need.on));
        let going = needed.filter(|node| self.views.get(*node).is_some_and(|view| view.is_deleting));
        affected.extend(going.cloned());
        affected
    }

    fn forget_module(&mut self, module: &On, node: &Node) {
        if let Some(nodes) = self.modules.get_mut(module) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.modules.remove(module);
            }
        }
    }
}

/// The kind that a need is about.
fn kind_of(need: &Need) -> Option<Kind> {
    match &need.on {
        On::Component(node) => Some(node.kind.clone()),
        On::Module { .. } => Some(Kind::helm()),
        On::Nowhere(_) => None,
    }
}

/// Why a component that is there is not ready; none where it is.
fn reason(kyma: Option<&str>, node: &Node, view: &View, ready: Option<&String>) -> Option<Why> {
    if view.kyma.as_deref() != kyma {
        return Some(Why::OfAnotherKyma);
    }
    if view.is_deleting {
        return Some(Why::Deleting);
    }
    let Some(expression) = ready else { return (!view.is_ready).then_some(Why::NotReady) };
    match view.judged.get(expression) {
        Some(Verdict::Ready) => None,
        Some(Verdict::NotReady) => Some(Why::Denied),
        Some(Verdict::Unclear) => Some(Why::Unclear),
        None => Some(Why::Unjudged(node.clone(), expression.clone())),
    }
}

/// All that is reached in one or more steps.
fn walk(start: &Node, next: impl Fn(&Node) -> Vec<Node>) -> HashSet<Node> {
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

/// The way from `start` to `end`, both included, and `start` again.
fn way(from: &HashMap<Node, Node>, start: &Node, end: Node) -> Vec<Node> {
    let mut way = vec![start.clone()];
    let mut at = end;
    while at != *start {
        way.push(at.clone());
        let Some(before) = from.get(&at) else { break };
        at = before.clone();
    }
    way.push(start.clone());
    way.reverse();
    way
}

#[cfg(test)]
#[path = "graph/tests.rs"]
mod tests;
