//! The clients: each connects, asks for the next file of the trace, reads to the end, and begins again.
//!
//! They are one host of infinite speed. Every byte is compared with what the server is to say, and the length, too;
//! what is wrong is kept as a fault of the payload.

use super::contents::{Contents, header, request};
use super::shared::SERVER;
use super::site::Site;
use crate::kit::OutcomeCell;
use pageferry_model::net::line::{Call, End, Speech, Talker};
use std::collections::BTreeMap;
use std::rc::Rc;

/// An answer on its way.
struct Answer {
    file: u32,
    header: Vec<u8>,
    heard: u64,
}

/// All clients: what they ask for next, and which answers are under way.
pub(super) struct Clients {
    site: Rc<Site>,
    contents: Contents,
    cell: OutcomeCell,
    max: usize,
    next: usize,
    open: BTreeMap<u64, Answer>,
    /// Of all answers.
    pub(super) heard_bytes: u64,
    /// What happens now is of no interest: the server has failed.
    pub(super) gone: bool,
}

impl Clients {
    pub(super) fn new(site: Rc<Site>, seed: u64, max: usize, cell: OutcomeCell) -> Clients {
        let contents = Contents::new(seed);
        Clients { site, contents, cell, max, next: 0, open: BTreeMap::new(), heard_bytes: 0, gone: false }
    }

    fn asks(&self) -> bool {
        !self.gone && self.open.len() < self.max && self.next < self.site.requests.len()
    }

    fn len(&self, answer: &Answer) -> u64 {
        answer.header.len() as u64 + self.site.sizes[answer.file as usize]
    }

    fn damage(&self, fault: String) {
        if !self.gone {
            self.cell.borrow_mut().damage(fault);
        }
    }

    /// The server says that all is answered: tests that it is.
    pub(super) fn end(&self) {
        let asked = self.next;
        if asked < self.site.requests.len() {
            self.damage(format!("{asked} of {} requests were made", self.site.requests.len()));
        }
        for answer in self.open.values().filter(|answer| answer.heard != self.len(answer)) {
            let (heard, len) = (answer.heard, self.len(answer));
            self.damage(format!("{heard} of {len} bytes of the answer with file {} arrived", answer.file));
        }
    }

    /// What of `bytes`, at `at` of an answer, is not what the server is to say.
    fn wrong(&self, answer: &Answer, at: u64, bytes: &[u8]) -> Option<u64> {
        let head = answer.header.len() as u64;
        let (in_head, in_file) = bytes.split_at(head.saturating_sub(at).min(bytes.len() as u64) as usize);
        if !in_head.is_empty() {
            let expected = &answer.header[at as usize..][..in_head.len()];
            let differ = expected.iter().zip(in_head).position(|(a, b)| a != b);
            if let Some(wrong) = differ {
                return Some(at + wrong as u64);
            }
        }
        let from = at + in_head.len() as u64;
        if from + in_file.len() as u64 > self.len(answer) {
            return Some(self.len(answer));
        }
        let mut wrong = None;
        self.contents.each_piece(answer.file, from.saturating_sub(head), in_file.len(), |done, piece| {
            let heard = &in_file[done..done + piece.len()];
            if heard != piece {
                let differ = heard.iter().zip(piece).position(|(a, b)| a != b).expect("they differ");
                wrong.get_or_insert(from + (done + differ) as u64);
            }
        });
        wrong
    }
}

impl Talker for Clients {
    fn accepts(&mut self, _: u64, _: u16) -> Option<Speech> {
        None
    }

    fn calls(&mut self, id: u64, _: u64) -> Option<Call> {
        if !self.asks() {
            return None;
        }
        let file = self.site.requests[self.next];
        self.next += 1;
        let header = header(file, self.site.sizes[file as usize]);
        self.open.insert(id, Answer { file, header, heard: 0 });
        Some(Call { to: SERVER, speech: Speech::of(request(file), false) })
    }

    fn next_call_at(&mut self, now_ns: u64) -> Option<u64> {
        self.asks().then_some(now_ns)
    }

    fn hears(&mut self, id: u64, _: u64, at: u64, bytes: &[u8]) {
        let Some(answer) = self.open.get(&id) else {
            return self.damage("bytes arrived on a connection that is over".into());
        };
        if at != answer.heard {
            self.damage(format!("byte {at} of an answer arrived after {} bytes", answer.heard));
        }
        if let Some(wrong) = self.wrong(answer, at, bytes) {
            self.damage(format!("byte {wrong} of the answer with file {} is wrong", answer.file));
        }
        self.heard_bytes += bytes.len() as u64;
        if let Some(answer) = self.open.get_mut(&id) {
            answer.heard = at + bytes.len() as u64;
        }
    }

    fn ended(&mut self, id: u64, _: u64, how: End) {
        let Some(answer) = self.open.remove(&id) else { return };
        let len = self.len(&answer);
        if how != End::Closed || answer.heard != len {
            let Answer { file, heard, .. } = answer;
            self.damage(format!("{heard} of {len} bytes of the answer with file {file} arrived: {how:?}"));
        }
    }
}
