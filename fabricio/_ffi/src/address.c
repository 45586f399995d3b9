#include "address.h"

#include "lane.h"
#include "local.h"
#include "places.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

/* How often we look for those that are gone, and after how many newcomers for
 * those that we never inserted: 256 places are taken if none is found. */
#define LOOK_NS          250000000ull
#define NEWCOMERS_A_LOOK 32u

static struct fab_address *address_find(const struct fab_lane *lane,
					const void *bytes, uint32_t length)
{
	struct fab_link *link;

	for (link = lane->addresses.next; link != &lane->addresses;
	     link = link->next) {
		struct fab_address *address =
			FAB_ENTRY(link, struct fab_address, link);

		if (address->length == length &&
		    !memcmp(address->bytes, bytes, length))
			return address;
	}
	return NULL;
}

static const char *address_name(const struct fab_address *address)
{
	return fab_place_name((const char *) address->bytes);
}

static void address_free(struct fab_lane *lane, struct fab_address *address)
{
	struct fab_place *place = NULL;

	/* What it said last may still be unread, and names its memory. */
	if (lane->local)
		(void) fab_lane_read(lane, NULL, 0);
	if (lane->places)
		place = fab_places_find(lane->places, address_name(address));
	fi_av_remove(lane->av, &address->address, 1, 0);
	fab_places_leave(place);
	fab_list_remove(&address->link);
	if (address->visit)
		fab_visit_end(address->visit);
	free(address);
}

int fab_address_guest(struct fab_lane *lane, const void *bytes, uint32_t length,
		      struct fab_address **address)
{
	struct fab_address *made = address_find(lane, bytes, length);

	if (made) {
		made->references++;
		*address = made;
		return 0;
	}
	made = calloc(1, sizeof(*made) + length);
	if (!made)
		return -FI_ENOMEM;
	memcpy(made->bytes, bytes, length);
	made->length = length;
	made->references = 1;
	if (lane->places) {
		fab_places_sweep(lane->places);
		lane->newcomers++;
	}
	if (fi_av_insert(lane->av, bytes, 1, &made->address, 0, NULL) != 1) {
		free(made);
		return lane->local ? -FI_ENOSPC : -FI_EINVAL;
	}
	fab_list_append(&lane->addresses, &made->link);
	*address = made;
	return 0;
}

/* V2: the endpoint that we kept it for is gone, and another one has its name. */
static int address_is_old(const struct fab_lane *lane,
			  const struct fab_address *address)
{
	return !address->references && address->foreign && lane->places &&
	       fab_place_file(address_name(address)) != address->file;
}

int fab_address_add(struct fab_lane *lane, const void *bytes, uint32_t length,
		    struct fab_address **address)
{
	struct fab_address *found = address_find(lane, bytes, length);
	struct fab_visit *visit = NULL;
	int ret = 0;

	if (found && address_is_old(lane, found)) {
		address_free(lane, found);
		found = NULL;
	}
	if (lane->local && (!found || !found->visit))
		ret = fab_visit_begin(lane->local, bytes, length, &visit);
	if (ret)
		return ret;
	ret = fab_address_guest(lane, bytes, length, &found);
	if (ret) {
		if (visit)
			fab_visit_end(visit);
		return ret;
	}
	if (visit) {
		found->visit = visit;
		lane->visiting++;
	}
	found->foreign = lane->local && !found->visit;
	if (found->foreign && !found->file)
		found->file = fab_place_file(address_name(found));
	*address = found;
	return 0;
}

int fab_address_check(const struct fab_address *address)
{
	if (!address->visit)
		return 0;
	switch (fab_visit_state(address->visit)) {
	case FAB_VISIT_WELCOME:
		return 0;
	case FAB_VISIT_OVER:
		return -FI_ESHUTDOWN;
	default:
		return -FI_EAGAIN;
	}
}

/* Nobody uses it any more. */
static int address_stays(const struct fab_address *address)
{
	if (address->visit) /* local.h, X4 */
		return fab_visit_state(address->visit) != FAB_VISIT_OVER;
	return (int) address->foreign; /* V1 */
}

void fab_address_release(struct fab_lane *lane, struct fab_address *address)
{
	if (--address->references)
		return;
	if (!address_stays(address))
		address_free(lane, address);
	else if (address->foreign && !address->file)
		address->file = fab_place_file(address_name(address));
}

void fab_addresses_purge(struct fab_lane *lane, int all)
{
	struct fab_link *link = lane->addresses.next, *next;

	for (; link != &lane->addresses; link = next) {
		struct fab_address *address =
			FAB_ENTRY(link, struct fab_address, link);

		next = link->next;
		if (address->references == 0 &&
		    (all || !address_stays(address)))
			address_free(lane, address);
	}
}

/* V1 */
static void addresses_forget(struct fab_lane *lane)
{
	struct fab_link *link = lane->addresses.next, *next;

	for (; link != &lane->addresses; link = next) {
		struct fab_address *address =
			FAB_ENTRY(link, struct fab_address, link);
		uint8_t missed;

		next = link->next;
		if (address->references || !address->foreign)
			continue;
		missed = (uint8_t) fab_place_is_gone(address_name(address),
						     address->file);
		if (missed && address->missed)
			address_free(lane, address);
		else
			address->missed = missed;
	}
}

static int is_named(const struct fab_lane *lane, const char *name)
{
	const struct fab_link *link;

	for (link = lane->addresses.next; link != &lane->addresses;
	     link = link->next) {
		if (!strcmp(address_name(
				    FAB_ENTRY(link, struct fab_address, link)),
			    name))
			return 1;
	}
	return 0;
}

/* V3 */
static void addresses_give_back(struct fab_lane *lane)
{
	char name[FAB_PLACE_NAME_BYTES];
	struct fab_place *place = NULL;
	fi_addr_t address;

	while ((place = fab_places_gone(lane->places, place, name))) {
		if (is_named(lane, name) ||
		    fi_av_insert(lane->av, name, 1, &address, 0, NULL) != 1)
			continue;
		fi_av_remove(lane->av, &address, 1, 0);
		fab_places_leave(place);
	}
}

void fab_addresses_tidy(struct fab_lane *lane, uint64_t now_ns)
{
	if (!lane->places || now_ns - lane->looked_ns < LOOK_NS)
		return;
	lane->looked_ns = now_ns;
	addresses_forget(lane);
	if (lane->newcomers < NEWCOMERS_A_LOOK)
		return;
	lane->newcomers = 0;
	addresses_give_back(lane);
}

void fab_address_speak(struct fab_lane *lane, const struct fab_address *address)
{
	/* To somebody it does not know, the provider sends its name instead,
	 * and says -FI_EAGAIN; else an empty frame goes, which is dropped. */
	lane->word.kind = FAB_OP_WORD;
	(void) fi_send(lane->ep, lane->frames, 0, lane->frames_desc,
		       address->address, &lane->word);
}
