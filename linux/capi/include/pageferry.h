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

#ifndef PAGEFERRY_H
#define PAGEFERRY_H

#include <stddef.h>
#include <stdint.h>

/**
 * The call has done what it says.
 */
#define PF_OK 0

/**
 * The peer has closed its side, or its process has ended, and all that it had sent was received. The peer is
 * to blame.
 */
#define PF_EPEER_DEAD 101

/**
 * The peer sends no more to this receiver, which gave its messages back too late. The peer has decided so.
 */
#define PF_EPEER_EVICTED 102

/**
 * The peer broke the protocol. The channel is closed for good; what was received before stays valid. The
 * peer is to blame.
 */
#define PF_EPEER_BROKEN 103

/**
 * The peer refused the channel, and pf_last_error() has its reason. Of the two sides one is to blame: the
 * reason says which.
 */
#define PF_EPEER_REFUSED 104

/**
 * The peer is none for this side: another version of the wire, another machine, or it lacks the level that
 * is required.
 */
#define PF_EPEER_UNFIT 105

/**
 * A system call failed: pf_last_errno() says how, pf_last_error() which. The host is to blame.
 */
#define PF_EHOST 201

/**
 * The host's kernel does not have what was asked for: pf_last_error() says what would have to be changed.
 */
#define PF_EHOST_UNSUPPORTED 202

/**
 * Memory that this side has set aside for the channel does not suffice: messages or handles were not given
 * back, or the budget is too small.
 */
#define PF_EBUDGET 301

/**
 * The caller asked for what cannot be: a handle that is NULL, freed, of another kind, of another process or
 * in use by another thread; a value that is out of range; a verb that the channel does not have. The caller
 * is to blame.
 */
#define PF_EUSAGE 401

/**
 * Nothing can be done without waiting, and the call was not to wait. Nobody is to blame.
 */
#define PF_EWOULDBLOCK 501

/**
 * The time is up. Nobody is to blame.
 */
#define PF_ETIMEDOUT 502

/**
 * A defect of this library. It is a bug, and pf_last_error() has what to report.
 */
#define PF_EINTERNAL 601

/**
 * Nobody is to blame: success, or it would have taken longer.
 */
#define PF_BLAME_NOBODY 0

/**
 * The process at the other end.
 */
#define PF_BLAME_PEER 1

/**
 * The machine, its kernel, or its limits.
 */
#define PF_BLAME_HOST 2

/**
 * What this side has set aside.
 */
#define PF_BLAME_BUDGET 3

/**
 * Who calls.
 */
#define PF_BLAME_CALLER 4

/**
 * This library.
 */
#define PF_BLAME_LIBRARY 5

/**
 * The last call of this thread that failed did not fail by a peer's fault.
 */
#define PF_PEER_NONE 0

/**
 * It is gone.
 */
#define PF_PEER_DEAD 1

/**
 * It sends no more, since this receiver was too slow.
 */
#define PF_PEER_EVICTED 2

/**
 * It refused the channel.
 */
#define PF_PEER_REFUSED 3

/**
 * It does not fit this side.
 */
#define PF_PEER_UNFIT 4

/**
 * It broke the protocol in a way that has no number here.
 */
#define PF_PEER_BROKEN 16

/**
 * A counter of its ring cannot be.
 */
#define PF_PEER_BROKEN_RING 17

/**
 * A message that it sent cannot be.
 */
#define PF_PEER_BROKEN_MESSAGE 18

/**
 * It gave back what it did not have.
 */
#define PF_PEER_BROKEN_RETURN 19

/**
 * The handshake, or a message of the socket.
 */
#define PF_PEER_BROKEN_HANDSHAKE 20

/**
 * Memory that it sent lacks the seals that keep it as it is.
 */
#define PF_PEER_BROKEN_NOT_SEALED 21

/**
 * Memory that it sent has another size than it said.
 */
#define PF_PEER_BROKEN_SIZE 22

/**
 * It tried to write to memory that it had lent.
 */
#define PF_PEER_BROKEN_LEASE 23

/**
 * It keeps a lease, or lacks a permission, on memory that goes to and fro.
 */
#define PF_PEER_BROKEN_SLOT 24

/**
 * Descriptors that it sent were lost: this process has reached its limit of them (`ulimit -n`).
 */
#define PF_PEER_BROKEN_DESCRIPTORS 25

/**
 * Waits for as long as it takes.
 */
#define PF_WAIT -1

/**
 * Does not wait: PF_EWOULDBLOCK instead.
 */
#define PF_NOWAIT 0

/**
 * The bytes are a copy: a value, from whatever peer.
 */
#define PF_LEVEL_COPY 1

/**
 * The bytes lie in memory of both, and only the types of a language keep the sender from writing to it. C
 * has no such types, so no C program can ask for it: it is what donated and shared memory has.
 */
#define PF_LEVEL_TYPED 2

/**
 * The sender's view is frozen by the MMU. The default. It holds against mistakes, and not against a hostile
 * sender.
 */
#define PF_LEVEL_MMU 3

/**
 * As PF_LEVEL_MMU, and the kernel says before each message is read that nobody can write to it. Between
 * sides that trust each other.
 */
#define PF_LEVEL_LEASED 4

/**
 * The memory is sealed: nobody can write it again, ever. It holds against a hostile sender.
 */
#define PF_LEVEL_SEALED 5

/**
 * No channel at all where the level cannot be had. Without it messages are copied then, and
 * pf_sender_level() and pf_receiver_level() say so.
 */
#define PF_CONFIG_REQUIRE_LEVEL 1

/**
 * Memory is never donated on this channel, which saves a mapping.
 */
#define PF_CONFIG_NO_DONATIONS 2

/**
 * A side that waits sleeps at once. Without it, it looks for `spin_us` first.
 */
#define PF_CONFIG_NO_SPIN 4

/**
 * A side that waits never sleeps: for two CPUs that have nothing else to do.
 */
#define PF_CONFIG_NO_SLEEP 8

/**
 * The receiver reads all of the message.
 */
#define PF_ARRIVED_TOUCHED 1

/**
 * The receiver hands the message on, or looks at a part of it.
 */
#define PF_ARRIVED_UNTOUCHED 2

/**
 * The bytes came in the ring: a copy.
 */
#define PF_VERB_INLINE 1

/**
 * The receiver copied the bytes out.
 */
#define PF_VERB_COPY 2

/**
 * The receiver reads the memory where it is.
 */
#define PF_VERB_LOAN 3

/**
 * The receiver alone has the memory.
 */
#define PF_VERB_DONATE 4

/**
 * Both have the memory.
 */
#define PF_VERB_SHARE 5

/**
 * The message is read where it is. It can be made writable later.
 */
#define PF_RECV_READ 0

/**
 * The message can be written to at once: as by pf_loan_data_mut().
 */
#define PF_RECV_COPY_ON_WRITE 1

/**
 * The bytes move to memory of this process, and the sender has its memory back at once: as by
 * pf_loan_transfer().
 */
#define PF_RECV_TRANSFER 2

/**
 * Memory that the sender shares comes as such, to be read while the sender writes it. Without this flag its
 * bytes are copied, so that what comes never changes.
 */
#define PF_RECV_SHARED 4

/**
 * Memory of the sender, to be filled and sent. A handle: see the top of this file.
 */
typedef struct pf_buffer pf_buffer;

/**
 * Memory that was sent, as its sender has it. A handle: see the top of this file.
 */
typedef struct pf_lent pf_lent;

/**
 * A place where others connect. A handle: see the top of this file.
 */
typedef struct pf_listener pf_listener;

/**
 * A message that was received. A handle: see the top of this file.
 */
typedef struct pf_loan pf_loan;

/**
 * The receiving end of a channel. A handle: see the top of this file.
 */
typedef struct pf_receiver pf_receiver;

/**
 * The sending end of a channel. A handle: see the top of this file.
 */
typedef struct pf_sender pf_sender;

/**
 * What a channel is to be. Each side has one: the sender's says how large pool and ring are, and both say
 * what they will have. Zero is the default of every field but `size`: begin with pf_config_init(), then set
 * what should differ. Later versions of the library have more fields at the end, and take a shorter
 * structure for one whose further fields are zero.
 */
typedef struct {
    /**
     * Bytes of this structure, as the caller was compiled with it: sizeof(pf_config). pf_config_init() sets
     * it.
     */
    size_t size;
    /**
     * Slots of the pool: 1 to 4096. Default 8. Every message that is not copied takes one or more of them
     * until it is home.
     */
    uint32_t slots;
    /**
     * Messages that are sent and not given back, at most: a power of two from 2 to 4096. Default 64.
     */
    uint32_t capacity;
    /**
     * Bytes of a slot; rounded up to what the MMU maps at a time (2 MB). Default 4 MB.
     */
    size_t slot_bytes;
    /**
     * Bytes that the peer can make this side hold, at most: the pool, copies, sealed memory. Default 1 GB.
     */
    uint64_t budget;
    /**
     * Bytes of a message that goes by copy in the ring itself, at most: a multiple of 64, to 1 MB. Default
     * 16 KB.
     */
    uint32_t inline_bytes;
    /**
     * What loans are to promise: one of PF_LEVEL_*. Default PF_LEVEL_MMU.
     */
    uint32_t level;
    /**
     * PF_CONFIG_*, or-ed. Default none.
     */
    uint32_t flags;
    /**
     * Microseconds that a side which waits looks before it sleeps. Default 20; on a machine with one CPU it
     * sleeps at once.
     */
    uint32_t spin_us;
    /**
     * Milliseconds that the peer may take for each step of the handshake. Default 10 s.
     */
    uint32_t handshake_ms;
    /**
     * Zero.
     */
    uint32_t reserved;
} pf_config;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * One line about a code of this library, for people. It never fails: an unknown code is said to be one. The
 * text is constant. Any thread may call it, at any time.
 */
const char *pf_strerror(int code);

/**
 * Who is to blame for a code: one of PF_BLAME_*. An unknown code is the caller's. It never fails.
 */
int pf_blame(int code);

/**
 * What the last call of this thread that failed says of it, for people: which argument, which system call,
 * who holds the memory. "" before the first failure. A call that succeeds leaves it as it is. The text is
 * the library's, and stays valid until this thread calls this function again, or ends.
 */
const char *pf_last_error(void);

/**
 * What the peer did, where the last call of this thread that failed failed by its fault: one of PF_PEER_*.
 */
int pf_last_peer_fault(void);

/**
 * The kernel's error number (as `errno`), where the last call of this thread that failed did so with
 * PF_EHOST; 0 otherwise.
 */
int pf_last_errno(void);

/**
 * Sets all of a configuration to its defaults. `size` is sizeof(pf_config) where it is called.
 *
 * PF_EUSAGE: `config` is NULL, or `size` that of no pf_config.
 *
 * The caller promises:
 * `config` is NULL or has `size` bytes.
 */
int pf_config_init(pf_config *config, size_t size);

/**
 * The version of the library that the program runs with: 65536 * major + 256 * minor + patch. It never
 * fails.
 */
uint32_t pf_version(void);

/**
 * How many handles of this process are not freed: to find what a program has lost. 0 in a child that `fork`
 * has just made. It never fails.
 */
size_t pf_open_handles(void);

/**
 * Both ends of a channel in this process, for two of its threads. The ends trust each other. `config` may be
 * NULL: the defaults.
 *
 * PF_EUSAGE: a value of the configuration. PF_EHOST: memory or descriptors are not to be had.
 *
 * The caller promises:
 * `config` is NULL or has as many bytes as it says; the other addresses are NULL or of a place for a handle.
 */
int pf_channel_pair(const pf_config *config, pf_sender **sender, pf_receiver **receiver);

/**
 * Two sockets that are each other's peer: `fds[0]` for one process, `fds[1]` for another. One of them
 * becomes a sender, the other a receiver. Both are closed by `exec`: clear FD_CLOEXEC of the one that a new
 * program shall have. The caller closes them, unless a call has taken them.
 *
 * PF_EHOST: no descriptors are to be had.
 *
 * The caller promises:
 * `fds` is NULL or has room for two.
 */
int pf_channel_sockets(int *fds);

/**
 * A socket to whoever listens at `path`: for the call that makes an end of it. Whether this side is the
 * sender or the receiver, both must know. The caller closes it, unless a call has taken it.
 *
 * PF_EHOST: nobody listens there, or the caller may not: see pf_last_errno().
 *
 * The caller promises:
 * `path` is NULL or a text; `fd` is NULL or a place for a number.
 */
int pf_channel_connect(const char *path, int *fd);

/**
 * Listens at `path`. The path is a name for the time of connecting and nothing more. What a killed process
 * has left there is replaced. Whoever may write to the socket file may connect; its mode is by the umask.
 *
 * PF_EHOST: somebody listens there already (EADDRINUSE), or the path cannot be: see pf_last_errno().
 *
 * The caller promises:
 * `path` is NULL or a text; `listener` is NULL or a place for a handle.
 */
int pf_listener_bind(const char *path, pf_listener **listener);

/**
 * Waits for the next connection, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT): a socket for the call that
 * makes an end of it. The caller closes it, unless a call has taken it.
 *
 * PF_EWOULDBLOCK, PF_ETIMEDOUT: nobody has connected.
 *
 * The caller promises:
 * `fd` is NULL or a place for a number.
 */
int pf_listener_accept(pf_listener *listener, int timeout_ms, int *fd);

/**
 * Ends listening, and removes the path.
 */
int pf_listener_free(pf_listener *listener);

/**
 * The sending end, over a socket whose other end becomes the receiver. Waits for it, as long as the
 * configuration's `handshake_ms` says for each step. The receiver may be hostile: memory is neither donated
 * to it nor shared with it. `config` may be NULL: the defaults.
 *
 * Where it succeeds the socket is the library's; otherwise it is the caller's, who closes it.
 *
 * PF_EPEER_*: the receiver is gone, refuses, or does not fit. PF_ETIMEDOUT: it does not answer. PF_EUSAGE:
 * `fd` is no SOCK_SEQPACKET socket of the Unix domain, or a value of the configuration.
 *
 * The caller promises:
 * `config` is NULL or has as many bytes as it says; `sender` is NULL or a place for a handle; nobody else
 * uses `fd`.
 */
int pf_sender_open(int fd, const pf_config *config, pf_sender **sender);

/**
 * As pf_sender_open(), to a receiver that this process trusts as itself: memory can be donated to it and
 * shared with it.
 *
 * It must run this library, or follow its protocol, and must not write to memory that it has given back.
 * Where it does so all the same, what this process reads there is undefined.
 *
 * The caller promises:
 * As for pf_sender_open(); and the receiver is what this says.
 */
int pf_sender_open_trusted(int fd, const pf_config *config, pf_sender **sender);

/**
 * The receiving end, over a socket whose other end becomes the sender. Waits for it, as long as the
 * configuration's `handshake_ms` says for each step. The sender may be hostile: its messages are copies or
 * sealed memory, which nobody can change after they were checked. `config` may be NULL: the defaults.
 *
 * Where it succeeds the socket is the library's; otherwise it is the caller's, who closes it.
 *
 * PF_EPEER_*: the sender is gone, refuses, or does not fit. PF_ETIMEDOUT: it does not answer. PF_EUSAGE:
 * `fd` is no SOCK_SEQPACKET socket of the Unix domain, or a value of the configuration.
 *
 * The caller promises:
 * `config` is NULL or has as many bytes as it says; `receiver` is NULL or a place for a handle; nobody else
 * uses `fd`.
 */
int pf_receiver_open(int fd, const pf_config *config, pf_receiver **receiver);

/**
 * As pf_receiver_open(), from a sender that this process trusts as itself: its messages are read where they
 * are.
 *
 * It must run this library, or follow its protocol, and must keep no other way to write to the memory that
 * it lends. Where it does so all the same, what this process reads there is undefined.
 *
 * The caller promises:
 * As for pf_receiver_open(); and the sender is what this says.
 */
int pf_receiver_open_trusted(int fd, const pf_config *config, pf_receiver **receiver);

/**
 * The descriptor of a pf_sender, a pf_receiver or a pf_listener, for `poll` and `epoll`: it becomes
 * readable. Use it for nothing else, and do not close it.
 *
 * *Of a receiver*: after pf_recv() has said PF_EWOULDBLOCK, when a message comes or the sender is gone. *Of
 * a sender*: after pf_sender_buffer() has said PF_EWOULDBLOCK, when something has come back or the receiver
 * is gone. *Of a listener*: when somebody has connected. Then call again, with PF_NOWAIT; it may still say
 * PF_EWOULDBLOCK. Without that answer before it, a poll may sleep beside a message that is there.
 *
 * The caller promises:
 * `fd` is NULL or a place for a number.
 */
int pf_fd(const void *handle, int *fd);

/**
 * Ends sending. The receiver takes what was sent, and then sees that the sender is gone. Buffers, lent
 * memory and what they point to stay valid until they are freed themselves.
 */
int pf_sender_free(pf_sender *sender);

/**
 * What loans of this channel promise: one of PF_LEVEL_*. It is what was asked for, or PF_LEVEL_COPY where
 * the host or the peer cannot have that.
 *
 * The caller promises:
 * `level` is NULL or a place for a number.
 */
int pf_sender_level(pf_sender *sender, int *level);

/**
 * Who was at the other end when the connection was made, as the kernel knows it: process (0 where it has no
 * number here), user, group.
 *
 * The caller promises:
 * `pid`, `uid` and `gid` are NULL or places for numbers.
 */
int pf_sender_peer(pf_sender *sender, int32_t *pid, uint32_t *uid, uint32_t *gid);

/**
 * How many messages were sent, and how many of them are out: sent, and not given back.
 *
 * The caller promises:
 * `sent` and `out` are NULL or places for numbers.
 */
int pf_sender_counters(pf_sender *sender, uint64_t *sent, uint64_t *out);

/**
 * Memory for a message of `len` bytes. Waits, while the receiver holds what there is, `timeout_ms` at most
 * (or PF_WAIT, PF_NOWAIT). What it finds there is older, or zero.
 *
 * PF_EUSAGE: `len` is 0 or more than the pool has; or this process itself holds all slots as buffers and
 * lent memory, so that waiting would never end. PF_EPEER_*: the receiver is gone. PF_EWOULDBLOCK,
 * PF_ETIMEDOUT.
 *
 * The caller promises:
 * `buffer` is NULL or a place for a handle.
 */
int pf_sender_buffer(pf_sender *sender, size_t len, int timeout_ms, pf_buffer **buffer);

/**
 * Waits until one more message can be sent, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT): the next call that
 * sends does not wait for that. Only on a sealed channel it may wait all the same, for memory that is out
 * counts against the budget there.
 *
 * PF_EPEER_*: the receiver is gone. PF_EWOULDBLOCK, PF_ETIMEDOUT: as many messages are out as the
 * configuration's `capacity`.
 */
int pf_sender_room(pf_sender *sender, int timeout_ms);

/**
 * Lends a buffer: the receiver reads it where it is, until it gives it back. `tag` is a number for the
 * receiver. Waits, while as many messages are out as the configuration's `capacity`, `timeout_ms` at most
 * (or PF_WAIT, PF_NOWAIT).
 *
 * Its pointer may be read on. What is stored through it from now on, by whatever thread, is a page of this process
 * alone and never reaches the message; but at PF_LEVEL_COPY it may, until the receiver has copied it.
 *
 * It uses `buffer` up. PF_EPEER_*: the receiver is gone. PF_EWOULDBLOCK, PF_ETIMEDOUT: there was no room.
 *
 * The caller promises:
 * `lent` is NULL or a place for a handle.
 */
int pf_sender_loan(pf_sender *sender, pf_buffer *buffer, uint64_t tag, int timeout_ms, pf_lent **lent);

/**
 * Gives a buffer away: the receiver alone reads and writes it, where it is. Its memory is free again when
 * the receiver gives it back. `tag` is a number for the receiver. Waits, while as many messages are out as
 * the configuration's `capacity`.
 *
 * A touch of its pointer is a fault (SIGSEGV) from now on.
 *
 * It uses `buffer` up. PF_EUSAGE: the receiver is not trusted, or one side has PF_CONFIG_NO_DONATIONS, or
 * the channel is sealed or leased. PF_EPEER_*: the receiver is gone.
 */
int pf_sender_donate(pf_sender *sender, pf_buffer *buffer, uint64_t tag);

/**
 * As pf_sender_donate(), with zero memory in the buffer's place: its pointer may be read and written on,
 * until `lent` is freed. `lent` cannot be waited for by pf_lent_wait().
 *
 * The caller promises:
 * `lent` is NULL or a place for a handle.
 */
int pf_sender_donate_zero(pf_sender *sender, pf_buffer *buffer, uint64_t tag, pf_lent **lent);

/**
 * Shows a buffer to the receiver while this side goes on to write it. There is no protection: the receiver
 * sees stores when the machine shows them to it. Waits, while as many messages are out as the
 * configuration's `capacity`.
 *
 * Its pointer may be read and written on, until `lent` is waited for or freed. `tag` is a number for the
 * receiver.
 *
 * It uses `buffer` up. PF_EUSAGE: the receiver is not trusted, or the channel is sealed or leased.
 * PF_EPEER_*: the receiver is gone.
 *
 * The caller promises:
 * `lent` is NULL or a place for a handle.
 */
int pf_sender_share(pf_sender *sender, pf_buffer *buffer, uint64_t tag, pf_lent **lent);

/**
 * Sends `len` bytes by copy: the caller's memory is the caller's again when this returns. `tag` is a number
 * for the receiver. Waits, while there is no room, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT).
 *
 * PF_EUSAGE: `data` is NULL, or `len` is more than the pool has. PF_EPEER_*: the receiver is gone.
 * PF_EWOULDBLOCK, PF_ETIMEDOUT: nothing was sent.
 *
 * The caller promises:
 * `data` is NULL or has `len` bytes that nobody writes during the call.
 */
int pf_sender_copy(pf_sender *sender, const void *data, size_t len, uint64_t tag, int timeout_ms);

/**
 * Sends a buffer by copy: the receiver copies it out, and its memory comes home at once. `tag` is a number
 * for the receiver. Waits, while as many messages are out as the configuration's `capacity`. What is stored
 * through its pointer may reach the message until `lent` is home.
 *
 * It uses `buffer` up. PF_EUSAGE: the channel is sealed. PF_EPEER_*: the receiver is gone.
 *
 * The caller promises:
 * `lent` is NULL or a place for a handle.
 */
int pf_sender_copy_buffer(pf_sender *sender, pf_buffer *buffer, uint64_t tag, pf_lent **lent);

/**
 * Sends a buffer in the way that is cheapest, by what was measured on this host and seen on this channel: by
 * copy or as a loan. pf_lent_verb() says which. `arrived` is what the receiver will do with it: one of
 * PF_ARRIVED_*. `tag` is a number for the receiver. Waits, while as many messages are out as the
 * configuration's `capacity`. What is stored through its pointer may reach the message until `lent` is home,
 * for it may be a copy.
 *
 * It uses `buffer` up. PF_EPEER_*: the receiver is gone.
 *
 * The caller promises:
 * `lent` is NULL or a place for a handle.
 */
int pf_sender_auto(pf_sender *sender, pf_buffer *buffer, int arrived, uint64_t tag, pf_lent **lent);

/**
 * As pf_sender_auto(), for a buffer that is not wanted back: it may also be donated. `verb` is what was
 * done: one of PF_VERB_*. Its pointer must not be used any more.
 *
 * It uses `buffer` up. PF_EUSAGE: the receiver is not trusted. PF_EPEER_*: the receiver is gone.
 *
 * The caller promises:
 * `verb` is NULL or a place for a number.
 */
int pf_sender_auto_give(pf_sender *sender, pf_buffer *buffer, int arrived, uint64_t tag, int *verb);

/**
 * Sends the same sealed memory once more: nothing is copied and nothing is sealed again. `lent` stays as it
 * is, and `again` is a handle of its own. `tag` is a number for the receiver. Waits, while there is no room.
 *
 * PF_EUSAGE: the memory is not sealed. PF_EPEER_*: the receiver is gone.
 *
 * The caller promises:
 * `again` is NULL or a place for a handle.
 */
int pf_sender_resend(pf_sender *sender, pf_lent *lent, uint64_t tag, pf_lent **again);

/**
 * Lends what was lent once more, unchanged: waits until it is home, and while there is no room. `again` is
 * its new handle, and `tag` a number for the receiver.
 *
 * It uses `lent` up. PF_EUSAGE: `lent` is no loan, or one of another channel. PF_EPEER_*: the receiver is
 * gone.
 *
 * The caller promises:
 * `again` is NULL or a place for a handle.
 */
int pf_sender_loan_again(pf_sender *sender, pf_lent *lent, uint64_t tag, pf_lent **again);

/**
 * Hands a message on, with its tag. Sealed memory goes as it is, where this channel takes it; anything else
 * is copied. `loan` stays as it is. Waits, while there is no room.
 *
 * PF_EUSAGE: `loan` is shared memory, which is none of the receiver's to hand on; or too long. PF_EPEER_*:
 * the receiver is gone.
 */
int pf_sender_forward(pf_sender *sender, pf_loan *loan);

/**
 * Where a buffer is, and how many bytes of it are sent. They may be read and written until the buffer is
 * sent or freed; what may be done afterwards, the call that sends it says. The address is that of the first
 * slot: aligned to 2 MB, or to a page at PF_LEVEL_SEALED.
 *
 * The caller promises:
 * `data` and `len` are NULL or places for the answers.
 */
int pf_buffer_data(pf_buffer *buffer, void **data, size_t *len);

/**
 * How many bytes a buffer may have.
 *
 * The caller promises:
 * `capacity` is NULL or a place for a number.
 */
int pf_buffer_capacity(pf_buffer *buffer, size_t *capacity);

/**
 * Sets how many bytes are sent: 1 to pf_buffer_capacity(). The buffer stays where it is.
 *
 * PF_EUSAGE: another number.
 */
int pf_buffer_set_len(pf_buffer *buffer, size_t len);

/**
 * Copies `len` bytes to the start of a buffer, and sets its length to that. The channel learns which kind of
 * stores is faster for it, and uses that: it is often faster than memcpy().
 *
 * PF_EUSAGE: `data` is NULL, or `len` is 0 or more than pf_buffer_capacity().
 *
 * The caller promises:
 * `data` is NULL or has `len` bytes outside of the buffer that nobody writes during the call.
 */
int pf_buffer_write(pf_buffer *buffer, const void *data, size_t len);

/**
 * Frees a buffer that is not to be sent. Its pointer must not be used any more.
 */
int pf_buffer_free(pf_buffer *buffer);

/**
 * Waits until the receiver has given the memory back, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT), and has
 * it as a buffer again, with the bytes that were sent. A receiver that is gone has given back all that it
 * had. `lent` is used up where this succeeds, and stays as it was otherwise. Sealed memory stays sealed:
 * what comes back is a copy.
 *
 * PF_EUSAGE: `lent` is of pf_sender_donate_zero(). PF_EWOULDBLOCK, PF_ETIMEDOUT: it is not home.
 *
 * The caller promises:
 * `buffer` is NULL or a place for a handle.
 */
int pf_lent_wait(pf_lent *lent, int timeout_ms, pf_buffer **buffer);

/**
 * Whether the receiver has given the memory back: 1 or 0.
 *
 * The caller promises:
 * `home` is NULL or a place for a number.
 */
int pf_lent_is_home(pf_lent *lent, int *home);

/**
 * What happened to the memory: one of PF_VERB_*.
 *
 * The caller promises:
 * `verb` is NULL or a place for a number.
 */
int pf_lent_verb(pf_lent *lent, int *verb);

/**
 * Where the memory is, and how many bytes it has: to be read until `lent` is waited for, lent again or
 * freed. Of pf_sender_donate_zero() it is the zero memory.
 *
 * The caller promises:
 * `data` and `len` are NULL or places for the answers.
 */
int pf_lent_data(pf_lent *lent, const void **data, size_t *len);

/**
 * The same, to be written: shared memory, which the receiver sees, or the zero memory of
 * pf_sender_donate_zero().
 *
 * PF_EUSAGE: it is lent or copied, and not the sender's to write.
 *
 * The caller promises:
 * `data` and `len` are NULL or places for the answers.
 */
int pf_lent_data_mut(pf_lent *lent, void **data, size_t *len);

/**
 * Frees the token, and lets the memory come home by itself. Its pointer must not be used any more. The
 * receiver keeps what it has.
 */
int pf_lent_free(pf_lent *lent);

/**
 * Ends receiving. The sender has back what was not received. Messages that were stay valid until they are
 * released.
 */
int pf_receiver_free(pf_receiver *receiver);

/**
 * What loans of this channel promise: one of PF_LEVEL_*.
 *
 * The caller promises:
 * `level` is NULL or a place for a number.
 */
int pf_receiver_level(pf_receiver *receiver, int *level);

/**
 * Who was at the other end when the connection was made, as the kernel knows it: process (0 where it has no
 * number here), user, group.
 *
 * The caller promises:
 * `pid`, `uid` and `gid` are NULL or places for numbers.
 */
int pf_receiver_peer(pf_receiver *receiver, int32_t *pid, uint32_t *uid, uint32_t *gid);

/**
 * How many messages were received, and how many bytes of copies and sealed memory they hold.
 *
 * The caller promises:
 * `received` and `held` are NULL or places for numbers.
 */
int pf_receiver_counters(pf_receiver *receiver, uint64_t *received, uint64_t *held);

/**
 * The next message. Waits for it, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT). `flags` are PF_RECV_*,
 * or-ed; one of PF_RECV_COPY_ON_WRITE and PF_RECV_TRANSFER at most. After PF_EWOULDBLOCK the receiver's
 * descriptor can be polled: see pf_fd().
 *
 * PF_EPEER_DEAD: the sender is gone, and all of its messages were received. PF_EPEER_BROKEN: the sender
 * broke the protocol, and the channel is closed. PF_EHOST, PF_EBUDGET: the message cannot be taken for want
 * of memory; it stays the next one. PF_EWOULDBLOCK, PF_ETIMEDOUT: nothing came.
 *
 * The caller promises:
 * `loan` is NULL or a place for a handle.
 */
int pf_recv(pf_receiver *receiver, unsigned int flags, int timeout_ms, pf_loan **loan);

/**
 * Where the bytes of a message are, and how many: to be read until it is released or moved by
 * pf_loan_transfer(). Nobody changes them, but for shared memory (PF_RECV_SHARED), which the sender writes.
 * Any number of threads may read them.
 *
 * PF_EHOST: shared memory cannot be mapped.
 *
 * The caller promises:
 * `data` and `len` are NULL or places for the answers.
 */
int pf_loan_data(pf_loan *loan, const void **data, size_t *len);

/**
 * The same, to be written to. Nobody else sees what is written, and it lasts until the message is released.
 * Of lent memory the kernel copies each page at the first store to it; donated and copied memory is written
 * where it is; sealed memory is copied whole first, to another address.
 *
 * PF_EUSAGE: it is shared memory. PF_EHOST, PF_EBUDGET: the memory is not to be had; the message stays as it
 * was.
 *
 * The caller promises:
 * `data` and `len` are NULL or places for the answers.
 */
int pf_loan_data_mut(pf_loan *loan, void **data, size_t *len);

/**
 * Moves the bytes to memory of this process, and gives the sender its memory back at once. The handle stays,
 * and the bytes are at another address: pointers from before must not be used any more. Once moved, it does
 * nothing.
 *
 * PF_EUSAGE: it is shared memory. PF_EHOST: the memory is not to be had; the message stays as it was.
 */
int pf_loan_transfer(pf_loan *loan);

/**
 * The number that the sender gave a message; 0 if none.
 *
 * The caller promises:
 * `tag` is NULL or a place for a number.
 */
int pf_loan_tag(pf_loan *loan, uint64_t *tag);

/**
 * How many messages came before a message on its channel.
 *
 * The caller promises:
 * `sequence` is NULL or a place for a number.
 */
int pf_loan_sequence(pf_loan *loan, uint64_t *sequence);

/**
 * What happened to the memory of a message: one of PF_VERB_*.
 *
 * The caller promises:
 * `verb` is NULL or a place for a number.
 */
int pf_loan_verb(pf_loan *loan, int *verb);

/**
 * What was promised of the bytes of a message: one of PF_LEVEL_*.
 *
 * The caller promises:
 * `level` is NULL or a place for a number.
 */
int pf_loan_level(pf_loan *loan, int *level);

/**
 * Gives a message back: the sender has its memory again. Its pointer must not be used any more, by any
 * thread.
 */
int pf_loan_release(pf_loan *loan);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEFERRY_H */
