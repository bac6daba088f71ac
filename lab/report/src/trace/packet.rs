//! Messages of Perfetto's own format, of which a trace is made: as much of them as is written here.
//!
//! The numbers are those of `protos/perfetto/trace` in Perfetto's repository, where the meaning of each field is told.
//! A file is one [`TraceFile`]; as protocol buffers have it, the bytes of several of them, one behind the other, are
//! one with the packets of all.

use prost::Message;

/// The only sequence of packets: what one interns, those behind it may name.
pub const SEQUENCE: u32 = 1;
/// What was interned is forgotten: at the first packet.
pub const STATE_CLEARED: u32 = 1;
/// The packet names what others have interned.
pub const NEEDS_STATE: u32 = 2;

/// `perfetto.protos.Trace`.
#[derive(Clone, PartialEq, Message)]
pub struct TraceFile {
    /// In any order: readers sort by time.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

impl TraceFile {
    /// The packets of a file.
    ///
    /// # Errors
    /// What is wrong with it, where it is no such file.
    pub fn read(bytes: &[u8]) -> Result<TraceFile, String> {
        TraceFile::decode(bytes).map_err(|error| error.to_string())
    }
}

/// `TracePacket`: one of the messages in it, and when.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// In nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// See [`SEQUENCE`].
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// Something happens.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// Words that this packet and those behind it name by number.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// [`STATE_CLEARED`], [`NEEDS_STATE`].
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// A track is there.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// What happens on a track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// What it tells.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// Which of the four it is.
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Its name, interned.
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    /// Where.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// The value of a counter from now on.
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
    /// Arrows that begin or end here.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
}

/// `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// None.
    Unspecified = 0,
    /// A slice begins.
    SliceBegin = 1,
    /// The slice ends that began last.
    SliceEnd = 2,
    /// A moment.
    Instant = 3,
    /// A counter changes.
    Counter = 4,
}

/// A name and a value, of one of these kinds.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// The name, interned.
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    /// A number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// An address.
    #[prost(uint64, optional, tag = "7")]
    pub pointer_value: Option<u64>,
    /// A word, interned.
    #[prost(uint64, optional, tag = "17")]
    pub string_value_iid: Option<u64>,
}

/// Words by number, of three kinds.
#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    /// Names of events.
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<InternedString>,
    /// Names of annotations.
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<InternedString>,
    /// Values of annotations.
    #[prost(message, repeated, tag = "29")]
    pub debug_annotation_string_values: Vec<InternedString>,
}

/// `EventName`, `DebugAnnotationName` and `InternedString`, which are the same in bytes.
#[derive(Clone, PartialEq, Message)]
pub struct InternedString {
    /// Not 0.
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    /// The word.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// A track: of a process, of a thread, of a counter, or of none of these.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Not 0.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// What is written beside it, unless it is a process or a thread.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Of a process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// Of a thread.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track that it is below.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// Of a counter.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// A group of tracks.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Its number.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// A track within a group; they lie in the order of their numbers.
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// The group's number.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its number.
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// What a counter counts.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// In which unit.
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}
