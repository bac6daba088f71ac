/* Prints the structures of the header as abi.txt has them. */
#include <stdio.h>

#include <pageferry.h>

#define FIELD(name)                                                                                  \
    printf("field pf_config." #name " %zu %zu\n", offsetof(pf_config, name), sizeof((pf_config *)0)->name)

int main(void)
{
    printf("struct pf_config %zu\n", sizeof(pf_config));
    FIELD(size);
    FIELD(slots);
    FIELD(capacity);
    FIELD(slot_bytes);
    FIELD(budget);
    FIELD(inline_bytes);
    FIELD(level);
    FIELD(flags);
    FIELD(spin_us);
    FIELD(handshake_ms);
    FIELD(reserved);
    return 0;
}
