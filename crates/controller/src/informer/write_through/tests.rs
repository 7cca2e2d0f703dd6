//! Compares writes with a model of a server and a watch, for random interleavings.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// Objects that are written; few, so that actions interact.
const KEYS: [u8; 2] = [0, 1];

/// Bits of a version below the number of the change. They have the number of restores, so that a restored server does
/// not create a version that it had before: the same version would be the same state.
const RESTORE_BITS: u32 = 8;

/// A step of the server, of the operator, or of its watch.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// The operator writes an object, and tracks it before or not. The response is on the way.
    Write(u8, bool),
    /// The operator records the oldest response.
    Respond,
    /// Another writer changes or creates an object.
    Change(u8),
    /// Another writer deletes an object.
    Delete(u8),
    /// The watch delivers the next event. The operator then drops a delivered write or not.
    Deliver(bool),
    /// The watch begins a list, or begins it again.
    BeginList,
    /// The server answers the list.
    ReadList,
    /// The watch has processed the list.
    EndList,
    BackUp,
    /// The server is restored from the last backup. Calls and the watch break off.
    Restore,
}

/// State of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ObjectState {
    version: ResourceVersion,
    value: u64,
}

#[derive(Debug, Clone, Default)]
struct Server {
    changes: u64,
    objects: BTreeMap<u8, ObjectState>,
}

/// State that a watch event shows; none after a deletion.
#[derive(Debug)]
struct WatchedChange {
    key: u8,
    version: ResourceVersion,
    state: Option<ObjectState>,
}

/// Response to a write.
#[derive(Debug)]
struct Response {
    key: u8,
    state: ObjectState,
    /// Whether the object was tracked from the write on.
    is_tracked: bool,
}

/// Progress of a list.
#[derive(Debug, Default)]
enum ListProgress {
    #[default]
    Ended,
    Begun,
    Read(Server),
}

#[derive(Debug, Default)]
struct World {
    server: Server,
    backup: Server,
    restores: u64,
    /// Number of values that were written.
    values: u64,
    responses: VecDeque<Response>,
    /// Events that the watch has not delivered.
    events: VecDeque<WatchedChange>,
    list: ListProgress,
    /// Whether the watch follows a complete list.
    is_watching: bool,
    /// Objects that the watch shows.
    shown: BTreeMap<u8, ObjectState>,
    /// Last response of each object that was recorded, and whether the object was tracked from the write on.
    recorded: BTreeMap<u8, (ObjectState, bool)>,
    /// Last response of each object that was recorded since the last restore.
    lasting: BTreeMap<u8, ObjectState>,
    writes: WriteThrough<u8, u64>,
}

impl Server {
    fn position(&self, restores: u64) -> ResourceVersion {
        ResourceVersion::from((self.changes << RESTORE_BITS) | restores)
    }
}

impl World {
    fn act(&mut self, action: Action) {
        match action {
            Action::Write(key, tracks) => {
                if tracks {
                    self.writes.track(key);
                }
                let (state, is_tracked) = (self.change(key), self.writes.is_tracked(&key));
                self.responses.push_back(Response { key, state, is_tracked });
            }
            Action::Respond => self.record_response(),
            Action::Change(key) => {
                self.change(key);
            }
            Action::Delete(key) => {
                if self.server.objects.remove(&key).is_some() {
                    let version = self.next_version();
                    self.events.push_back(WatchedChange { key, version, state: None });
                }
            }
            Action::Deliver(forgets) => self.deliver(forgets),
            Action::BeginList => {
                self.list = ListProgress::Begun;
                self.writes.begin_list();
            }
            Action::ReadList => {
                if matches!(self.list, ListProgress::Begun) {
                    self.list = ListProgress::Read(self.server.clone());
                    self.events.clear();
                }
            }
            Action::EndList => self.end_list(),
            Action::BackUp => self.backup = self.server.clone(),
            Action::Restore => {
                self.server = self.backup.clone();
                self.restores += 1;
                self.responses.clear();
                self.events.clear();
                self.lasting.clear();
                self.list = ListProgress::Ended;
                self.is_watching = false;
            }
        }
    }

    fn next_version(&mut self) -> ResourceVersion {
        self.server.changes += 1;
        self.server.position(self.restores)
    }

    fn change(&mut self, key: u8) -> ObjectState {
        self.values += 1;
        let state = ObjectState { version: self.next_version(), value: self.values };
        self.server.objects.insert(key, state);
        self.events.push_back(WatchedChange { key, version: state.version, state: Some(state) });
        state
    }

    fn record_response(&mut self) {
        let Some(Response { key, state, is_tracked }) = self.responses.pop_front() else { return };
        self.writes.record_write(key, state.version, state.value);
        self.recorded.insert(key, (state, is_tracked));
        self.lasting.insert(key, state);
    }

    fn deliver(&mut self, forgets: bool) {
        if !self.is_watching || !matches!(self.list, ListProgress::Ended) {
            return;
        }
        let Some(WatchedChange { key, version, state }) = self.events.pop_front() else { return };
        self.writes.record_event(&key, version);
        match state {
            Some(state) => self.shown.insert(key, state),
            None => self.shown.remove(&key),
        };
        if forgets {
            self.writes.forget_delivered(&key);
            self.untrack(key);
        }
    }

    /// Records whether an object is not tracked any more.
    fn untrack(&mut self, key: u8) {
        if self.writes.is_tracked(&key) {
            return;
        }
        let responses = self.responses.iter_mut().filter(|response| response.key == key);
        responses.for_each(|response| response.is_tracked = false);
        if let Some((_, is_tracked)) = self.recorded.get_mut(&key) {
            *is_tracked = false;
        }
    }

    fn end_list(&mut self) {
        if let ListProgress::Read(listed) = std::mem::take(&mut self.list) {
            let position = listed.position(self.restores);
            self.writes.end_list_at(position, |key| Some(listed.objects.get(key)?.version));
            self.shown = listed.objects;
            self.is_watching = true;
        } else {
            // Its answer is missing: the watch lists again.
            self.is_watching = false;
        }
    }

    /// Completes all calls, and lets the watch catch up.
    fn settle(&mut self) {
        while !self.responses.is_empty() {
            self.act(Action::Respond);
        }
        if !self.is_watching || !matches!(self.list, ListProgress::Ended) {
            for action in [Action::BeginList, Action::ReadList, Action::EndList] {
                self.act(action);
            }
        }
        while !self.events.is_empty() {
            self.act(Action::Deliver(false));
        }
    }

    /// Returns the later one of the states that the watch shows and that was written.
    fn latest(&self, key: u8, shown: ObjectState) -> ObjectState {
        let write = self.writes.newer_than(&key, shown.version);
        write.map_or(shown, |write| ObjectState { version: write.version(), value: *write.value() })
    }

    /// Checks what holds at any time.
    fn check(&self) -> Result<(), TestCaseError> {
        for (key, shown) in &self.shown {
            let latest = self.latest(*key, *shown);
            let is_later = self.lasting.get(key).is_none_or(|written| latest.version >= written.version);
            prop_assert!(is_later, "object {} is {:?}, older than its own write", key, latest);
            // After a restore, the watch shows states that the server does not have any more.
            if self.is_watching && self.writes.current(key).is_some() {
                let written = self.writes.last(key).map(OwnWrite::version);
                prop_assert!(written >= Some(shown.version), "another writer changed object {}", key);
            }
        }
        Ok(())
    }

    /// Checks that the watch and the writes show the state of the server, once both have caught up.
    fn check_settled(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(&self.shown, &self.server.objects);
        for key in KEYS {
            let stored = self.server.objects.get(&key);
            if let Some(stored) = stored {
                prop_assert_eq!(self.latest(key, *stored), *stored, "object {}", key);
            }
            let written = self.recorded.get(&key).filter(|(written, _)| stored == Some(written));
            match (self.writes.current(&key), written) {
                (Some(value), written) => {
                    let expected = written.map(|(state, _)| state.value);
                    prop_assert_eq!(Some(*value), expected, "object {} is not as it was written", key);
                }
                (None, written) => {
                    let is_lost = written.is_some_and(|(_, is_tracked)| *is_tracked);
                    prop_assert!(!is_lost, "object {} is as it was written", key);
                }
            }
        }
        Ok(())
    }
}

fn action() -> impl Strategy<Value = Action> {
    let key = || prop::sample::select(&KEYS[..]);
    prop_oneof![
        6 => (key(), any::<bool>()).prop_map(|(key, tracks)| Action::Write(key, tracks)),
        6 => Just(Action::Respond),
        4 => key().prop_map(Action::Change),
        2 => key().prop_map(Action::Delete),
        6 => any::<bool>().prop_map(Action::Deliver),
        3 => Just(Action::BeginList),
        4 => Just(Action::ReadList),
        4 => Just(Action::EndList),
        2 => Just(Action::BackUp),
        1 => Just(Action::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn writes_count_until_a_watch_or_a_list_shows_them(actions in prop::collection::vec(action(), 1..40)) {
        let mut world = World::default();
        for action in actions {
            world.act(action);
            world.check()?;
        }
        world.settle();
        world.check()?;
        world.check_settled()?;
    }
}

fn at(version: u64) -> ResourceVersion {
    version.into()
}

fn written(version: u64) -> WriteThrough<u8, &'static str> {
    let mut writes = WriteThrough::default();
    writes.record_write(0, at(version), "ours");
    writes
}

#[test]
fn list_without_reported_beginning_supersedes_all_writes() {
    for (listed, expected) in [(Some(7), Some(&"ours")), (Some(5), None), (None, None)] {
        let mut writes = written(7);
        writes.end_list_at(at(6), |_| listed.map(at));
        assert_eq!(writes.current(&0), expected, "{listed:?}");
        assert_eq!(writes.last(&0).map(OwnWrite::is_superseded), Some(expected.is_none()));
    }
}

#[test]
fn list_begun_again_supersedes_writes_since_its_first_beginning() {
    let mut writes = WriteThrough::default();
    writes.begin_list();
    writes.record_write(0, at(7), "ours");
    writes.begin_list();
    writes.record_write(1, at(8), "ours");
    writes.end_list();
    assert!(writes.newer_than(&0, at(5)).is_none() && writes.newer_than(&1, at(5)).is_some());
}

#[test]
fn a_write_after_a_restore_replaces_one_with_a_higher_version() {
    let mut writes = written(7);
    writes.record_write(0, at(3), "after the restore");
    assert_eq!(writes.newer_than(&0, at(2)).map(|write| *write.value()), Some("after the restore"));
}

#[test]
fn response_after_later_events_counts_if_the_object_was_tracked() {
    for (tracks, expected) in [(true, Some(&"ours")), (false, None)] {
        let mut writes = WriteThrough::default();
        if tracks {
            writes.track(0);
        }
        writes.record_event(&0, at(7));
        writes.record_event(&1, at(8));
        writes.record_write(0, at(7), "ours");
        assert_eq!(writes.current(&0), expected, "tracks: {tracks}");
    }
}

#[test]
fn objects_are_dropped_on_request() {
    let mut writes = written(7);
    writes.retain(|write| !write.is_superseded());
    assert_eq!(writes.current(&0), Some(&"ours"));
    writes.end_list();
    writes.retain(|write| !write.is_superseded());
    assert!(writes.last(&0).is_none() && writes.is_empty());
    let mut writes = written(7);
    writes.record_event(&0, at(6));
    writes.forget_delivered(&0);
    assert_eq!(writes.current(&0), Some(&"ours"), "the watch has not delivered the write");
    writes.record_event(&0, at(7));
    writes.forget_delivered(&0);
    assert!(writes.is_empty());
    let mut writes = written(7);
    writes.forget(&0);
    assert!(writes.is_empty());
}
