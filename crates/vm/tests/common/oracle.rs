//! The plain model that the VM system is compared with: a process is a map from page numbers to bytes, and fork copies
//! them all. No sharing that is not asked for, no laziness, nothing to get wrong.

use super::pattern;
use pageferry_hal::{PAGE_SIZE, Prot};
use pageferry_vm::{Inherit, VmError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

type Bytes = Rc<RefCell<Vec<u8>>>;

/// Where a page's bytes are.
#[derive(Clone)]
enum Content {
    /// Its own.
    Own(Vec<u8>),
    /// Those of the file, until it is written; then its own.
    Private(Bytes),
    /// Those of the file, for good.
    File(Bytes),
}

/// What several processes may share.
type Shared = Rc<RefCell<Content>>;

#[derive(Clone)]
pub struct Page {
    shared: Shared,
    /// The file below, if any.
    below: Option<Bytes>,
    pub prot: Prot,
    pub inherit: Inherit,
}

impl Page {
    pub fn zero(prot: Prot, inherit: Inherit) -> Page {
        Page { shared: Rc::new(RefCell::new(Content::Own(vec![0; PAGE_SIZE]))), below: None, prot, inherit }
    }

    pub fn of_file(file: &Bytes, private: bool, prot: Prot, inherit: Inherit) -> Page {
        let content = if private { Content::Private(file.clone()) } else { Content::File(file.clone()) };
        Page { shared: Rc::new(RefCell::new(content)), below: Some(file.clone()), prot, inherit }
    }

    pub fn bytes(&self) -> Vec<u8> {
        match &*self.shared.borrow() {
            Content::Own(bytes) => bytes.clone(),
            Content::Private(file) | Content::File(file) => file.borrow().clone(),
        }
    }

    /// Gives the page bytes of its own, as a write would.
    pub fn promote(&self) {
        let mut content = self.shared.borrow_mut();
        if let Content::Private(file) = &*content {
            let copy = file.borrow().clone();
            *content = Content::Own(copy);
        }
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.promote();
        match &mut *self.shared.borrow_mut() {
            Content::Own(own) => own[offset..offset + bytes.len()].copy_from_slice(bytes),
            Content::File(file) => file.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes),
            Content::Private(_) => unreachable!("promoted above"),
        }
    }

    /// What a child gets.
    fn inherited(&self) -> Option<Page> {
        match self.inherit {
            Inherit::None => None,
            Inherit::Share => Some(self.clone()),
            Inherit::Copy => Some(self.copied()),
        }
    }

    /// The page as a receiver of a copy sees it.
    pub fn copied(&self) -> Page {
        let content = match &*self.shared.borrow() {
            Content::File(file) => Content::Private(file.clone()),
            other => other.clone(),
        };
        Page { shared: Rc::new(RefCell::new(content)), ..self.clone() }
    }

    /// True for memory of its own (perhaps shared), false for a file that is written.
    pub fn is_anonymous(&self) -> bool {
        !matches!(&*self.shared.borrow(), Content::File(_))
    }

    /// Other bytes take the place of the page's.
    pub fn replace(&self, bytes: &[u8]) {
        assert!(self.is_anonymous());
        *self.shared.borrow_mut() = Content::Own(bytes.to_vec());
    }

    /// Uncovers what is below.
    pub fn flush(&self) {
        if self.is_anonymous() {
            *self.shared.borrow_mut() = match &self.below {
                Some(file) => Content::Private(file.clone()),
                None => Content::Own(vec![0; PAGE_SIZE]),
            };
        }
    }
}

/// A file of a few pages.
pub fn file(pages: usize) -> Vec<Bytes> {
    (0..pages).map(|p| Rc::new(RefCell::new(pattern(p as u8, PAGE_SIZE)))).collect()
}

/// A process: pages by number.
#[derive(Clone, Default)]
pub struct Process {
    pub pages: BTreeMap<u64, Page>,
}

impl Process {
    pub fn fork(&self) -> Process {
        Process { pages: self.pages.iter().filter_map(|(&n, p)| Some((n, p.inherited()?))).collect() }
    }

    /// Why an access to page `n` is refused, if it is; `at` is for the error.
    pub fn refusal(&self, n: u64, write: bool, at: pageferry_hal::Va) -> Option<VmError> {
        let needed = if write { Prot::WRITE } else { Prot::READ };
        match self.pages.get(&n) {
            None => Some(VmError::Fault(at)),
            Some(page) if !page.prot.contains(needed) => Some(VmError::Access),
            Some(_) => None,
        }
    }

    pub fn is_free(&self, mut pages: impl Iterator<Item = u64>) -> bool {
        !pages.any(|n| self.pages.contains_key(&n))
    }

    pub fn is_mapped(&self, mut pages: impl Iterator<Item = u64>) -> bool {
        pages.all(|n| self.pages.contains_key(&n))
    }
}
