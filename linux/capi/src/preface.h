/*
 * pageferry.h: big buffers between processes on Linux, without a copy where that is cheaper.
 *
 * Made by cbindgen from linux/capi/src. Do not edit it.
 *
 * The model
 *     A channel has a sending and a receiving end, in one process or in two. The sender takes a buffer
 *     (pf_sender_buffer), fills it, and sends it: by loan, as a donation, shared, or by copy. It then has a
 *     pf_lent, the receiver a pf_loan (pf_recv). When the receiver has released its pf_loan, the memory is home:
 *     pf_lent_wait() makes a buffer of it again. What was lent is a snapshot: no later store of either side reaches
 *     the other.
 *
 * Handles
 *     A pointer to a pf_... is a number that this library finds things by. It leads to no memory: reading through
 *     it is a fault. Each handle is ended once, by the function ..._free or pf_loan_release, or by a call that
 *     "uses it up". From then on its number is no handle, for ever, and every call that gets it answers PF_EUSAGE;
 *     so does one that gets NULL, a handle of another kind, or any other number. This is also so when two threads
 *     end a handle at the same time: one of them succeeds. A call that uses a handle up does so where it succeeds.
 *     Where it fails the handle is as it was, and is the caller's to end. (At PF_LEVEL_SEALED the buffer's memory
 *     is at another address then: ask for it again.) Where a call fails, the place of the new handle has NULL.
 *
 * Pointers
 *     The memory of a buffer or a message is real, and its pointer is only good as long as its function says.
 *     Nothing can check that.
 *
 * Errors
 *     Every function that returns int answers PF_OK (0) or a PF_E..., which says who is to blame; pf_blame() names
 *     them. pf_last_error() has the details, for the calling thread. No function ends the process, and none prints,
 *     but for PF_EINTERNAL: where in the source that was goes to standard error. What errno is after a call says
 *     nothing.
 *
 * Threads
 *     Any thread may call any function. A handle of an end, of a listener or of lent memory is for one thread at a
 *     time: a call that finds another one in progress on it answers PF_EUSAGE. On a buffer or a message the second
 *     call waits for the first. Both ends of a channel, its buffers and its messages may be in different threads.
 *     No function is called back, and no function may be called in a signal handler.
 *
 * fork
 *     Handles belong to the process that made them: in a child of fork() they answer PF_EUSAGE, and nothing that a
 *     child does changes its parent's channels. The child may read the memory of its parent's messages for as long
 *     as the parent lives, and make channels of its own. A raw clone() or vfork() is not noticed: call exec at
 *     once.
 *
 * Units
 *     Sizes are bytes. Times are milliseconds in an int, where PF_WAIT (-1) is for ever and PF_NOWAIT (0) not at
 *     all.
 */
