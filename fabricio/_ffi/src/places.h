/* Places: what libfabric's shm provider remembers of each neighbour, in the
 * memory file of our endpoint.
 *
 * The provider (2.5 and 2.6) gives each address in the AV one of 256 places,
 * goes round through those that are free, and writes there which place the
 * neighbour has for us. Of two that let go of each other, the second clears the
 * place of the first's; a killed one clears none, and nobody the second's own.
 * So after 256 addresses a newcomer gets a place that says it is known, though
 * its memory is not mapped yet: the next post to it crashes the process.
 * libfabric has no call that mends it, and the memory is our endpoint's. So we
 * mark the place of an address that we remove, and clear what is marked before
 * we insert another.
 *
 * Also, a neighbour that posts to us before we have inserted it takes a place by
 * that, and has it until the AV is closed, unless it is inserted and removed.
 * With 256 taken, the provider gives somebody's to the next that posts. So we
 * look for those whose endpoint is gone.
 *
 * Q1 nothing is written unless the file is just what the versions that we know
 *    make: version, name, sizes, and 256 places in the state of a new endpoint.
 *    Otherwise addresses of other processes stay in the AV until the lane
 *    closes, and the 257th is refused.
 * Q2 a place is cleared when its address has left the AV. One whose neighbour
 *    has not said its name yet looks the same, and is cleared too: we say ours
 *    again.
 * Q3 a place is called gone when its neighbour's file, or the process, was not
 *    there any more the last time we looked as well: what it posted before has
 *    been read by then. */
#ifndef FAB_PLACES_H
#define FAB_PLACES_H

#include <stdint.h>

#define FAB_PLACE_NAME_BYTES 256

struct fab_places;
struct fab_place;

/* What the provider calls an address: its name, within a URI. */
const char *fab_place_name(const char *address);
/* The number of the file that has this name now; 0 if there is none. */
uint64_t fab_place_file(const char *name);
/* Whether the endpoint of this name has no file any more, or not this one (0:
 * any), or no process. */
int fab_place_is_gone(const char *name, uint64_t file);

/* Those of the endpoint with this name, which was just enabled; NULL if its
 * memory is not as we know it. [worker] */
struct fab_places *fab_places_open(const char *name);
void fab_places_close(struct fab_places *places);

/* The place of the neighbour with this name, while it is in the AV; NULL if it
 * has none yet. [worker] */
struct fab_place *fab_places_find(struct fab_places *places, const char *name);

/* The address of this place (NULL: it had none) was removed. [worker] */
void fab_places_leave(struct fab_place *place);

/* The first after `place` (NULL: of all) whose neighbour is gone, and its name;
 * NULL if there is none. One round looks once at each. [worker] */
struct fab_place *fab_places_gone(struct fab_places *places,
				  const struct fab_place *place,
				  char name[FAB_PLACE_NAME_BYTES]);

/* Clear what was left. Before an address is inserted. [worker] */
void fab_places_sweep(struct fab_places *places);

#endif
