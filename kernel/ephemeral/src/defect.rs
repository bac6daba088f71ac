//! A defect to plant, to prove that checks find it.

use pageferry_defects::defects;

defects! {
    /// What can be wrong with ephemeral mappings.
    pub enum EphemeralDefect {
        FlushedHereOnly: "Changes of shared mappings are invalidated in the own TLB, and not on other CPUs.",
        FlushLeftOut: "Mappings that are made for each use are not invalidated where the policy says so.",
        ReleasedUnlisted: "A mapping that nobody uses any more is not in the list of those.",
        AddressTwice: "An address of the free list is given out and stays in the list.",
    }
}
