/* Endpoints of this process that other lanes of this process talk to.
 *
 * The provider for shared memory maps a region once a process. Two things
 * follow that processes apart from each other need not care about:
 * - the mapping goes when the endpoint that made it closes: a lane that still
 *   has it in its AV would touch unmapped memory;
 * - the provider (libfabric 2.5) exchanges names only one way, and the side
 *   that spoke first never learns where the other is mapped: it crashes on the
 *   first larger message that comes back. Both must have spoken before either
 *   listens.
 * So a lane that inserts a neighbour's address pays a visit: the neighbour's
 * worker inserts the visitor and speaks first; then the visitor speaks, before
 * it reads its CQ again; when the neighbour has read that, both may post. And
 * an endpoint that others still use is parked when its lane closes, and closed
 * by the last of them.
 *
 * X1 an endpoint is closed only when no other lane of the process has its
 *    address in an AV.
 * X2 a lane gives back what it uses before it parks, so no two wait for each
 *    other.
 * X3 nothing is posted on a visit before it is FAB_VISIT_WELCOME.
 * X4 an address once visited stays in the AV, used or not, until the host or
 *    the visitor closes: names are exchanged once.
 * X5 a visitor that was greeted speaks before its CQ is read again, by whom and
 *    for what purpose ever.
 * libfabric keeps this state once a process; so must we: the list is the one
 * global of the engine, behind a mutex. */
#ifndef FAB_LOCAL_H
#define FAB_LOCAL_H

#include <rdma/fi_eq.h>
#include <stdint.h>

struct fab_lane;
struct fab_local;
struct fab_visit;

enum fab_visit_state {
	FAB_VISIT_WAITING = 0, /* the neighbour has not looked yet */
	FAB_VISIT_GREETED,     /* it has inserted the visitor, and spoken */
	FAB_VISIT_SPOKEN,      /* the visitor has spoken, and read */
	FAB_VISIT_HEARD,       /* the host will have read with its next look */
	FAB_VISIT_WELCOME,     /* and has: both know each other */
	FAB_VISIT_OVER,        /* the neighbour has closed or failed */
};

/* Make a lane's endpoint known. NULL when memory is out. [worker] */
struct fab_local *fab_local_publish(const void *address, uint32_t bytes);

/* Forget it: the lane closes, and has given back its own visits. Its objects
 * are closed, or parked until the last visitor has left. [worker] */
void fab_local_retire(struct fab_local *local, struct fab_lane *lane);

/* Visit the endpoint with this address, before it gets into the AV (X1).
 * *visit is NULL if it is of another process. 0, -FI_ECONNREFUSED if it closes,
 * or -FI_ENOMEM. [worker] */
int fab_visit_begin(struct fab_local *visitor, const void *address,
		    uint32_t bytes, struct fab_visit **visit);
enum fab_visit_state fab_visit_state(const struct fab_visit *visit);
void fab_visit_end(struct fab_visit *visit);

/* Insert those who wait for us, and let those go who left. Cheap when nothing
 * has changed since the last time. [worker] */
void fab_local_welcome(struct fab_local *local, struct fab_lane *lane);

/* fi_cq_read(3) for a lane with visits that are not yet welcome (X5).
 * [worker] */
ssize_t fab_local_read(struct fab_lane *lane, struct fi_cq_data_entry *entries,
		       size_t count);

#endif
