/* The README's first program, with checks. */
#include "check.h"

int main(void)
{
    pf_config config = small_config();
    struct traces before;
    pf_sender *tx;
    pf_receiver *rx;
    pf_buffer *buffer;
    pf_lent *lent;
    pf_loan *loan;
    const void *data;
    void *mine;
    size_t len;
    int home, verb, level;
    uint64_t tag, sequence;

    warm_up();
    before = traces();
    OK(pf_channel_pair(&config, &tx, &rx));
    buffer = filled(tx, 1000000, 7);
    OK(pf_buffer_data(buffer, &mine, &len));
    OK(pf_sender_loan(tx, buffer, 42, PF_WAIT, &lent));
    /* A stray store misses the message, and is no fault. */
    memset(mine, 8, len);

    OK(pf_recv(rx, PF_RECV_READ, PF_WAIT, &loan));
    OK(pf_loan_data(loan, &data, &len));
    CHECK(len == 1000000 && all_are(data, len, 7));
    OK(pf_loan_tag(loan, &tag));
    OK(pf_loan_sequence(loan, &sequence));
    OK(pf_loan_verb(loan, &verb));
    OK(pf_loan_level(loan, &level));
    CHECK(tag == 42 && sequence == 0 && verb == PF_VERB_LOAN && level == PF_LEVEL_MMU);
    OK(pf_lent_is_home(lent, &home));
    CHECK(!home);
    ANSWERS(PF_EWOULDBLOCK, pf_lent_wait(lent, PF_NOWAIT, &buffer));
    CHECK(buffer == NULL);
    OK(pf_loan_release(loan));
    ANSWERS(PF_EUSAGE, pf_loan_release(loan));

    OK(pf_lent_wait(lent, PF_WAIT, &buffer));
    ANSWERS(PF_EUSAGE, pf_lent_free(lent));
    /* What was sent is there again, without the stray store. */
    OK(pf_buffer_data(buffer, &mine, &len));
    CHECK(len == 1000000 && all_are(mine, len, 7));
    OK(pf_buffer_free(buffer));
    OK(pf_sender_free(tx));
    ANSWERS(PF_EPEER_DEAD, pf_recv(rx, PF_RECV_READ, PF_WAIT, &loan));
    CHECK(pf_last_peer_fault() == PF_PEER_DEAD && pf_blame(PF_EPEER_DEAD) == PF_BLAME_PEER);
    OK(pf_receiver_free(rx));
    nothing_is_left_since(before);
    puts("first: ok");
    return 0;
}
