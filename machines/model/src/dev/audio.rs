//! The modelled sound device: two channels, one to play and one to record, each with real bytes at a fixed rate.
//!
//! A fragment begins when the one before it in its channel ends, or when it is handed in if that is later: then there
//! is a gap. Its bytes move when its interrupt arrives, as late as can be: a kernel that reuses a frame or writes a
//! page meanwhile is found out. What is recorded is a sound that a test can compute; what is played is kept, for
//! comparison.
//!
//! The device belongs to the hardware and is borrowed with it.

use crate::memory::Memory;
use crate::params::AudioParams;
use pageferry_hal::{AudioDone, AudioRequest, PAGE_SIZE, Transfer};
use std::collections::VecDeque;

/// The byte at `position` of what there is to be recorded.
pub(crate) fn sound(position: u64) -> u8 {
    let x = position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x >> 29) ^ (x >> 53)) as u8
}

#[derive(Debug)]
struct Fragment {
    request: AudioRequest,
    position: u64,
    ends_at: u64,
}

#[derive(Debug, Default)]
struct Channel {
    under_way: VecDeque<Fragment>,
    /// When the first fragment began, once there was one.
    began_at: Option<u64>,
    /// When the last one ends, and the position there.
    free_at: u64,
    position: u64,
    gaps: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Audio {
    play: Channel,
    record: Channel,
    done: VecDeque<AudioDone>,
    played: Vec<u8>,
}

impl Audio {
    /// Takes a fragment in at `now`; answers when it will be done.
    ///
    /// # Panics
    /// When it is empty or leaves its frame.
    pub(crate) fn submit(&mut self, params: AudioParams, now: u64, request: AudioRequest) -> u64 {
        let len = request.len_bytes as u64;
        assert!(len > 0 && request.offset + request.len_bytes <= PAGE_SIZE, "{request:?} is in no frame");
        let channel = match request.transfer {
            Transfer::Read => &mut self.record,
            Transfer::Write => &mut self.play,
        };
        let began_at = *channel.began_at.get_or_insert(now);
        if now > channel.free_at && now > began_at {
            channel.gaps += 1;
            channel.position = channel.position.max(params.bytes_in(now - began_at));
        }
        let ends_at = channel.free_at.max(now) + params.cycles_for(len);
        let position = channel.position;
        channel.under_way.push_back(Fragment { request, position, ends_at });
        (channel.free_at, channel.position) = (ends_at, position + len);
        ends_at
    }

    /// The fragment that ends first has ended: moves its bytes. There is one interrupt for each.
    pub(crate) fn complete(&mut self, memory: &mut Memory) -> AudioRequest {
        let end = |c: &Channel| c.under_way.front().map_or(u64::MAX, |f| f.ends_at);
        let plays = end(&self.play) <= end(&self.record);
        let channel = if plays { &mut self.play } else { &mut self.record };
        let Fragment { request, position, .. } =
            channel.under_way.pop_front().expect("as many interrupts as fragments");
        let at = request.frame.pa() + request.offset;
        match request.transfer {
            Transfer::Write => {
                let before = self.played.len();
                self.played.resize(before + request.len_bytes, 0);
                memory.read(at, &mut self.played[before..]);
            }
            Transfer::Read => {
                let bytes = memory.bytes_mut(at, request.len_bytes);
                bytes.iter_mut().zip(position..).for_each(|(byte, at)| *byte = sound(at));
            }
        }
        self.done.push_back(AudioDone { tag: request.tag });
        request
    }

    pub(crate) fn take_done(&mut self) -> Option<AudioDone> {
        self.done.pop_front()
    }

    /// Fragments that were not answered yet.
    pub(crate) fn unanswered(&self) -> usize {
        self.play.under_way.len() + self.record.under_way.len() + self.done.len()
    }

    /// All that was played.
    pub(crate) fn played(&self) -> &[u8] {
        &self.played
    }

    /// How often there was silence between fragments: played, and recorded.
    pub(crate) fn gaps(&self) -> (u64, u64) {
        (self.play.gaps, self.record.gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_hal::Pfn;

    const PARAMS: AudioParams = AudioParams { bytes_per_s: 1000, card_pages: 0, clock_hz: 1_000_000 };

    fn fragment(tag: u64, transfer: Transfer, len_bytes: usize) -> AudioRequest {
        AudioRequest { tag, transfer, frame: Pfn(tag as u32), offset: 8, len_bytes }
    }

    #[test]
    fn fragments_follow_each_other_in_time_and_directions_do_not_wait() {
        let (mut audio, mut memory) = (Audio::default(), Memory::new(4));
        assert_eq!(audio.submit(PARAMS, 50, fragment(0, Transfer::Read, 10)), 50 + 10_000);
        assert_eq!(audio.submit(PARAMS, 60, fragment(1, Transfer::Read, 5)), 50 + 15_000);
        assert_eq!(audio.submit(PARAMS, 70, fragment(2, Transfer::Write, 4)), 70 + 4_000);
        memory.bytes_mut(Pfn(2).pa() + 8, 4).copy_from_slice(b"play");
        let tags: Vec<u64> = (0..3).map(|_| audio.complete(&mut memory).tag).collect();
        assert_eq!(tags, [2, 0, 1], "in order of their ends");
        assert_eq!(audio.played(), b"play");
        let recorded = |frame: u32, len| {
            let mut bytes = vec![0; len];
            memory.read(Pfn(frame).pa() + 8, &mut bytes);
            bytes
        };
        let expected = |from: u64, len: u64| (from..from + len).map(sound).collect::<Vec<u8>>();
        assert_eq!((recorded(0, 10), recorded(1, 5)), (expected(0, 10), expected(10, 5)));
        assert_eq!((audio.gaps(), audio.unanswered()), ((0, 0), 3));
    }

    #[test]
    fn what_nobody_has_room_for_is_lost() {
        let (mut audio, mut memory) = (Audio::default(), Memory::new(4));
        audio.submit(PARAMS, 0, fragment(0, Transfer::Read, 10));
        // Ten bytes' time after the end of the first.
        assert_eq!(audio.submit(PARAMS, 20_000, fragment(1, Transfer::Read, 10)), 30_000);
        audio.complete(&mut memory);
        audio.complete(&mut memory);
        assert_eq!(audio.gaps(), (0, 1));
        assert!(memory.holds(Pfn(1).pa() + 8, &[sound(20)]));
    }
}
