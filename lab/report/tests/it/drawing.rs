//! A trace as a viewer reads it: packets sorted by time, words and tracks by their numbers, slices from their two ends.

use pageferry_report::trace::packet::{DebugAnnotation, EventType, TraceFile, TrackDescriptor};
use std::collections::{BTreeMap, BTreeSet};

/// What an event tells beside its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Number(u64),
    Address(u64),
    Word(String),
}

/// A slice, or a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) nanos: (u64, u64),
    pub(crate) tells: BTreeMap<String, Value>,
    pub(crate) flows: Vec<u64>,
}

/// By group and track: the group is a process of the viewer's.
pub(crate) type ByTrack<T> = BTreeMap<(String, String), Vec<T>>;

/// All of it.
#[derive(Default, Debug)]
pub(crate) struct Drawing {
    /// Tracks of one name are one.
    pub(crate) slices: ByTrack<Event>,
    pub(crate) moments: ByTrack<Event>,
    pub(crate) samples: ByTrack<(u64, i64)>,
}

#[derive(Default)]
struct Words([BTreeMap<u64, String>; 3]);

impl Words {
    fn of(&self, kind: usize, number: Option<u64>) -> String {
        self.0[kind][&number.expect("a number")].clone()
    }

    fn tells(&self, annotations: &[DebugAnnotation]) -> BTreeMap<String, Value> {
        let told = |a: &DebugAnnotation| match (a.uint_value, a.pointer_value, a.string_value_iid) {
            (Some(number), None, None) => Value::Number(number),
            (None, Some(at), None) => Value::Address(at),
            (None, None, Some(_)) => Value::Word(self.of(2, a.string_value_iid)),
            other => panic!("one value: {other:?}"),
        };
        annotations.iter().map(|a| (self.of(1, a.name_iid), told(a))).collect()
    }
}

/// The group and the name of a track.
fn place(tracks: &BTreeMap<u64, TrackDescriptor>, uuid: u64) -> (String, String) {
    let track = &tracks[&uuid];
    let group = |pid: Option<i32>| {
        let mut of = tracks.values().filter_map(|t| t.process.as_ref());
        let process = of.find(|process| process.pid == pid).expect("a thread's process is described");
        process.process_name.clone().expect("a name")
    };
    if let Some(process) = &track.process {
        return (group(process.pid), String::new());
    }
    if let Some(thread) = &track.thread {
        return (group(thread.pid), thread.thread_name.clone().expect("a name"));
    }
    let (parent, _) = place(tracks, track.parent_uuid.expect("a track below another"));
    (parent, track.name.clone().expect("a name"))
}

impl Drawing {
    /// Reads a file.
    pub(crate) fn read(bytes: &[u8]) -> Drawing {
        let mut packets = TraceFile::read(bytes).expect("packets").packet;
        let (mut words, mut tracks) = (Words::default(), BTreeMap::new());
        // What is interned comes first, in the order of the file.
        for (i, packet) in packets.iter().enumerate() {
            assert_eq!(packet.trusted_packet_sequence_id, Some(1));
            assert_eq!(packet.sequence_flags, Some(if i == 0 { 1 } else { 2 }));
            let new = packet.interned_data.clone().unwrap_or_default();
            let kinds = [new.event_names, new.debug_annotation_names, new.debug_annotation_string_values];
            for (known, new) in words.0.iter_mut().zip(kinds) {
                for word in new {
                    let (number, word) = (word.iid.expect("a number"), word.name.expect("a word"));
                    assert!(!known.values().any(|known| *known == word), "`{word}` is written twice");
                    assert!(number > 0 && known.insert(number, word).is_none());
                }
            }
            if let Some(track) = &packet.track_descriptor {
                assert!(tracks.insert(track.uuid.expect("a number"), track.clone()).is_none());
            }
            if let Some(event) = &packet.track_event {
                assert!(
                    event.track_uuid.is_some_and(|uuid| tracks.contains_key(&uuid)),
                    "a track is told before"
                );
                assert!(event.name_iid.is_none_or(|name| words.0[0].contains_key(&name)), "so are words");
            }
        }
        packets.sort_by_key(|packet| packet.timestamp);

        let mut drawing = Drawing::default();
        let mut open: BTreeMap<u64, Event> = BTreeMap::new();
        let mut flows: BTreeMap<u64, u32> = BTreeMap::new();
        for packet in &packets {
            let Some(event) = &packet.track_event else { continue };
            let (uuid, at) = (event.track_uuid.expect("a track"), packet.timestamp.expect("a time"));
            let drawn = || Event {
                name: words.of(0, event.name_iid),
                nanos: (at, at),
                tells: words.tells(&event.debug_annotations),
                flows: event.flow_ids.clone(),
            };
            match event.r#type() {
                EventType::SliceBegin => {
                    let nested = open.insert(uuid, drawn());
                    assert_eq!(nested, None, "slices of a track follow each other");
                }
                EventType::SliceEnd => {
                    let begun = open.remove(&uuid).expect("what ends has begun");
                    let slices = drawing.slices.entry(place(&tracks, uuid)).or_default();
                    slices.push(Event { nanos: (begun.nanos.0, at), ..begun });
                }
                EventType::Instant => {
                    event.flow_ids.iter().for_each(|flow| *flows.entry(*flow).or_default() += 1);
                    drawing.moments.entry(place(&tracks, uuid)).or_default().push(drawn());
                }
                EventType::Counter => {
                    assert!(tracks[&uuid].counter.is_some());
                    let value = event.counter_value.expect("a value");
                    drawing.samples.entry(place(&tracks, uuid)).or_default().push((at, value));
                }
                EventType::Unspecified => panic!("an event of no kind"),
            }
        }
        assert!(open.is_empty(), "never ended: {open:?}");
        let ends: BTreeSet<_> = flows.values().copied().collect();
        assert!(ends.is_empty() || ends == BTreeSet::from([2]), "an arrow has two ends: {ends:?}");
        drawing
    }
}
