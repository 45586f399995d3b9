/* Coalesced wake-ups over an eventfd.
 *
 * Doorbell (worker -> loop): the fd is written only when the flag goes 0 -> 1.
 * W1 whoever rings has published its work before (the exchange orders it).
 * W2 the sleeper reads the fd first, then clears the flag, then looks for
 *    work: a ring between the last two finds the flag down and writes again,
 *    so none is lost; the reverse order would leave the flag up with an empty
 *    fd.
 * Sleeper (loop -> worker): the flag says "about to sleep".
 * W3 the sleeper raises the flag, then looks for work once more, then sleeps.
 * W4 the waker publishes work, then takes the flag; only who took it writes.
 * Both touch the flag by exchange only. Exchanges on one flag have one order:
 * a waker that came first is seen by the sleeper's second look, one that came
 * later finds the flag up. */
#ifndef FAB_WAKEUP_H
#define FAB_WAKEUP_H

#include <stdatomic.h>
#include <stdint.h>

struct fab_wakeup {
	int fd;                             /* owned; -1 when closed */
	_Alignas(64) _Atomic uint32_t flag; /* both threads write */
};

int fab_wakeup_open(struct fab_wakeup *wakeup);
void fab_wakeup_close(struct fab_wakeup *wakeup);

/* Doorbell. Returns 1 if the fd was written. */
int fab_wakeup_ring(struct fab_wakeup *wakeup);
void fab_wakeup_clear(struct fab_wakeup *wakeup);

/* Sleeper. */
void fab_wakeup_prepare(struct fab_wakeup *wakeup);
void fab_wakeup_finish(struct fab_wakeup *wakeup);
void fab_wakeup_rouse(struct fab_wakeup *wakeup);

#endif
