#include "wakeup.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

int fab_wakeup_open(struct fab_wakeup *wakeup)
{
	atomic_init(&wakeup->flag, 0);
	wakeup->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return wakeup->fd < 0 ? -errno : 0;
}

void fab_wakeup_close(struct fab_wakeup *wakeup)
{
	if (wakeup->fd >= 0)
		close(wakeup->fd);
	wakeup->fd = -1;
}

static void wakeup_write(struct fab_wakeup *wakeup)
{
	uint64_t one = 1;

	/* EAGAIN means that the fd is full of wake-ups: success. */
	while (write(wakeup->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void wakeup_read(struct fab_wakeup *wakeup)
{
	uint64_t count;

	while (read(wakeup->fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

int fab_wakeup_ring(struct fab_wakeup *wakeup)
{
	if (atomic_exchange_explicit(&wakeup->flag, 1, memory_order_acq_rel))
		return 0;
	wakeup_write(wakeup);
	return 1;
}

void fab_wakeup_clear(struct fab_wakeup *wakeup)
{
	wakeup_read(wakeup);
	(void) atomic_exchange_explicit(&wakeup->flag, 0, memory_order_acq_rel);
}

void fab_wakeup_prepare(struct fab_wakeup *wakeup)
{
	(void) atomic_exchange_explicit(&wakeup->flag, 1, memory_order_acq_rel);
}

void fab_wakeup_finish(struct fab_wakeup *wakeup)
{
	/* Read always: whoever took the flag may write only after this, and
	 * then ends the next sleep early, but no other. */
	(void) atomic_exchange_explicit(&wakeup->flag, 0, memory_order_acq_rel);
	wakeup_read(wakeup);
}

void fab_wakeup_rouse(struct fab_wakeup *wakeup)
{
	if (atomic_exchange_explicit(&wakeup->flag, 0, memory_order_acq_rel))
		wakeup_write(wakeup);
}
