//! Sets of objects on real API servers.

mod on_clusters {
    mod adoption;
    mod as_written;
    mod crds;
    mod deleter;
    mod drift;
    mod first;
    mod handover;
    mod health;
    mod ignored_fields;
    mod injected;
    mod inputs;
    mod leftovers;
    mod ownership;
    mod patches;
    mod prunes;
    mod recreate;
    mod refusals;
    mod removal;
    mod schemas;
    mod story;
    mod take_over;
}
