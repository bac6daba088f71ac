//! The stand-ins of a kernel that is built without verification (feature `verify`): no failure is planned, no change is
//! noted, no defect is planted, nothing is counted or registered. All of it has size zero and compiles to nothing.

use super::defect::VmDefect;
use alloc::sync::Arc;
use core::marker::PhantomData;
use pageferry_hal::{Pfn, StructVa};

#[derive(Clone, Default)]
pub(crate) struct Probes {
    pub(crate) failures: Failures,
    pub(crate) journal: Journal,
    pub(crate) planted: Planted,
}

#[derive(Clone, Default)]
pub(crate) struct Failures;

impl Failures {
    pub(crate) fn due(&self) -> bool {
        false
    }
}

#[derive(Clone, Default)]
pub(crate) struct Journal;

impl Journal {
    pub(crate) fn frame(&self, _: Pfn) {}
    pub(crate) fn anon(&self, _: StructVa) {}
    pub(crate) fn amap(&self, _: StructVa) {}
    pub(crate) fn space(&self, _: u64) {}
}

#[derive(Clone, Default)]
pub(crate) struct Planted;

impl Planted {
    pub(crate) fn is(&self, _: VmDefect) -> bool {
        false
    }
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) kernel_loans: Count,
    pub(crate) anon_loans: Count,
    pub(crate) kernel_pages: Count,
    pub(crate) lost: Count,
    pub(crate) abandoned: Count,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Count;

impl Count {
    pub(crate) fn add(&self, _: usize) {}
    pub(crate) fn sub(&self, _: usize) {}
}

pub(crate) struct Register<T>(PhantomData<fn(T)>);

impl<T> Default for Register<T> {
    fn default() -> Register<T> {
        Register(PhantomData)
    }
}

impl<T> Register<T> {
    pub(crate) fn add(&mut self, _: StructVa, _: &Arc<T>) {}
    pub(crate) fn remove(&mut self, _: StructVa) {}
}
