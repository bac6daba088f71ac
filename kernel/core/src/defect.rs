//! Defects to plant in the kernel, to see that the checks find them: a kernel with one of these must be caught.

use pageferry_defects::defects;

defects! {
    /// What can be wrong with pipes, mappings and sockets.
    pub enum KernelDefect {
        LostWakeup: "A pipe's reader that has drained a direct write does not wake the writer. Caught as a deadlock.",
        MissingShootdown: "Changes of kernel mappings shared by all CPUs are invalidated in the own TLB only. Caught \
                           as the use of a stale translation, on two CPUs or more.",
        MissingPolicyFlush: "Mappings that are made for each use are not invalidated where the policy says so: when \
                             they are made, when they are unmade, or at both. Caught as the use of a stale \
                             translation.",
        MissingWire: "The pages of a direct write are handed to the reader without being wired. Caught where the \
                      reader takes them.",
        GatheredPageNotCleared: "A page that bytes are gathered in for a transfer is not cleared behind them. Caught \
                                 where the receiver looks there.",
        DiskAnswerLost: "Whoever asked a disk for something is not woken by the answer. Caught as a deadlock.",
        DiskPageNotCleared: "A page of a memory disk that is written in part at first keeps what was in its frame. \
                             Caught where the rest is read.",
        SyncerForgets: "What has waited for as long as it may is not written. Caught where the disk is looked at then.",
        BufferNotWired: "The pages of a buffer that a disk reads into are not kept wired until it has. Caught where \
                         they go meanwhile: others have them when the bytes come.",
    }
}

defects! {
    /// What can be wrong with the choice of threads by the TLB.
    pub enum SchedDefect {
        PassedForEver: "Others may go before a thread as often as the TLB has more of their spaces.",
    }
}

defects! {
    /// What can be wrong with the Internet protocols.
    pub enum NetDefect {
        FreedWhileSent: "A frame's memory is freed as soon as the card was told of it, and not when the card is done.",
        LengthBelieved: "A header's word on its own length is believed, where that is longer than the packet.",
        SumsIgnored: "Sums of what arrives are not looked at.",
        WindowUntold: "A window that opens is not told to the other end.",
        OrderWithoutWrap: "Sequence numbers are compared as numbers, without their wrap.",
        FinBeforeData: "A FIN is taken before the data in front of it is here.",
        AgainFromElsewhere: "What is sent again begins a byte too late.",
        WindowBeyondBuffer: "A larger window is told than the buffer has room for.",
        DuplicateDelivered: "What was received before is delivered again.",
        EarlyAsInOrder: "What comes too early is delivered at once.",
        EarlyLostOnReset: "What was kept for later is lost when a reset comes.",
        BuffersLeftWithCard: "The card keeps its buffers when it is stopped.",
        AnswerUnasked: "Answers to questions that were not asked are believed.",
        ResetAnywhere: "A reset is believed whatever its number.",
        WriterNotWoken: "The writer is not woken when what it has sent is acknowledged.",
        FlipOfShared: "A page that is received becomes the receiver's although another packet shows it, too: a clone \
                       that is read behind the flip finds nothing there (page-flip paper, on current issues).",
        FlipOfPart: "A page that is received becomes the receiver's although only a part of it has arrived: what \
                     was behind that in the frame is shown.",
        FlipWithHeaders: "A page that is received becomes the receiver's although headers are in front of the data.",
        FlippedNotFlushed: "The kernel's address of a page that has become the receiver's is given to another page, \
                            and no TLB is told.",
        AreaPagesAllOut: "A card gets all pages of a receive area: what comes elsewhere can be copied to none. Caught \
                          where the process gets nothing more.",
        AreaPageReused: "A page of a receive area is filled again although the process is not done with it.",
        FlowNotEnded: "The card goes on to fill a receive area whose socket is closed.",
        LenderNotTold: "A lender is not told that its pages are back.",
        LenderToldEarly: "A lender is told that its pages are back as soon as they are lent.",
        LentMappingPrivate: "Mappings of lent pages are private to the CPU that has lent them, which need not be the \
                             one that frees them.",
        LentMappingKept: "Mappings of lent pages are kept when the loan is over.",
        FileBeyondEnd: "The last page of a file is sent as a whole.",
        RepackedElsewhere: "A driver that copies puts the data behind the headers a byte too far.",
        ReceiveMappingPrivate: "Mappings of pages that a driver receives into are private to the CPU that has made \
                                them, which need not be the one that reads or frees them.",
        ReceiveMappingKept: "The mapping of a page that a driver has received into is kept when the page goes.",
        ReceiveMappingsAll: "A driver leaves no buffer of the mapping cache to others.",
        FlippedStaysWired: "A page that a driver has received into stays wired when it has become the receiver's.",
        FlipRefusedLost: "A page that a receiver refuses to take over is lost, with its bytes.",
        AlarmNotMoved: "Who works on a connection without the table of all does not move its alarm.",
        EndedStaysToAccept: "A connection that ends before it is accepted stays with its listener.",
        FlipRefusedReversed: "Pages that a receiver refuses to take over come back in the reverse order.",
    }
    /// It shows only where pages are lent to a connection, or taken over from it.
    needs_pages: [
        FlipOfShared, FlipOfPart, LenderNotTold, LenderToldEarly, LentMappingPrivate, LentMappingKept, FileBeyondEnd,
        RepackedElsewhere, ReceiveMappingPrivate, ReceiveMappingKept, ReceiveMappingsAll, FlippedStaysWired,
        FlipRefusedLost, FlipRefusedReversed, FlipWithHeaders, FlippedNotFlushed, AreaPagesAllOut, AreaPageReused,
        FlowNotEnded,
    ];
    /// It shows only where the other end sends what no host should, or resets what it has just sent.
    needs_a_liar: [LengthBelieved, AnswerUnasked, ResetAnywhere, EarlyLostOnReset, EndedStaysToAccept];
}
