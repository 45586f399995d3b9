/* hwloc's tree as flat records. What the process must not use stays in the
 * tree, so that devices near it keep their place, and is left out of cores. */
#include "error.h"

#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOTE_NAME "fabricio"

struct fab_topology {
	hwloc_topology_t hwloc; /* owned */
	hwloc_bitmap_t usable;  /* owned: CPUs that this process may use */
	char *xml;              /* owned; NULL: not exported yet */
};

/* hwloc reports by errno, but not always. */
static int topology_errno(void)
{
	return errno > 0 ? -errno : -FI_EINVAL;
}

static int topology_load(struct fab_topology *topology, const char *xml,
			 int bytes, struct fab_error *error)
{
	hwloc_topology_t hwloc = topology->hwloc;

	errno = 0;
	if (xml && hwloc_topology_set_xmlbuffer(hwloc, xml, bytes))
		return fab_error_set(error, topology_errno(),
				     "hwloc_topology_set_xmlbuffer", 0, NULL);
	/* PCI devices come from sysfs: the other way, through libpciaccess,
	 * leaks. It fails where there is no such way. */
	(void) hwloc_topology_set_components(
		hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci");
	/* Without OS devices hwloc wakes no GPU library. */
	if (hwloc_topology_set_flags(hwloc,
				     HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) ||
	    hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_PCI_DEVICE,
					   HWLOC_TYPE_FILTER_KEEP_IMPORTANT) ||
	    hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_BRIDGE,
					   HWLOC_TYPE_FILTER_KEEP_IMPORTANT) ||
	    hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_OS_DEVICE,
					   HWLOC_TYPE_FILTER_KEEP_NONE))
		return fab_error_set(error, topology_errno(),
				     "hwloc_topology_set_flags", 0, NULL);
	errno = 0;
	if (hwloc_topology_load(hwloc))
		return fab_error_set(error, topology_errno(),
				     "hwloc_topology_load", 0, NULL);
	return 0;
}

/* Allowed by the system (cgroups), and bound to by the calling thread. */
static int topology_find_usable(struct fab_topology *topology)
{
	hwloc_bitmap_t bound;

	topology->usable = hwloc_bitmap_dup(
		hwloc_topology_get_allowed_cpuset(topology->hwloc));
	if (!topology->usable)
		return -FI_ENOMEM;
	if (!hwloc_topology_is_thissystem(topology->hwloc))
		return 0;
	bound = hwloc_bitmap_alloc();
	if (!bound)
		return -FI_ENOMEM;
	if (!hwloc_get_cpubind(topology->hwloc, bound, HWLOC_CPUBIND_THREAD))
		hwloc_bitmap_and(topology->usable, topology->usable, bound);
	hwloc_bitmap_free(bound);
	return 0;
}

int fab_topology_open(const char *xml, uint64_t bytes,
		      struct fab_topology **topology, struct fab_error *error)
{
	struct fab_topology *opened;
	char *text = NULL;
	int ret;

	if (bytes >= INT_MAX)
		return fab_error_set(error, -FI_E2BIG,
				     "hwloc_topology_set_xmlbuffer", 0, NULL);
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return fab_error_set(error, -FI_ENOMEM, "calloc", 0, NULL);
	if (xml) {
		/* hwloc wants a 0 at the end, and counts it. */
		text = malloc((size_t) bytes + 1);
		if (!text) {
			ret = fab_error_set(error, -FI_ENOMEM, "malloc", 0,
					    NULL);
			goto fail;
		}
		memcpy(text, xml, (size_t) bytes);
		text[bytes] = '\0';
	}
	if (hwloc_topology_init(&opened->hwloc)) {
		opened->hwloc = NULL;
		ret = fab_error_set(error, -FI_ENOMEM, "hwloc_topology_init", 0,
				    NULL);
		goto fail;
	}
	ret = topology_load(opened, text, (int) bytes + 1, error);
	if (ret)
		goto fail;
	ret = topology_find_usable(opened);
	if (ret) {
		fab_error_set(error, ret, "hwloc_bitmap_alloc", 0, NULL);
		goto fail;
	}
	free(text);
	*topology = opened;
	return 0;

fail:
	free(text);
	fab_topology_close(opened);
	return ret;
}

void fab_topology_close(struct fab_topology *topology)
{
	if (topology->xml)
		hwloc_free_xmlbuffer(topology->hwloc, topology->xml);
	if (topology->hwloc)
		hwloc_topology_destroy(topology->hwloc);
	hwloc_bitmap_free(topology->usable);
	free(topology);
}

int fab_topology_is_local(const struct fab_topology *topology)
{
	return hwloc_topology_is_thissystem(topology->hwloc) ? 1 : 0;
}

/* How many objects a level has; hwloc says -1 or 0 for none. */
static uint32_t level_count(const struct fab_topology *topology, int depth)
{
	int count = (int) hwloc_get_nbobjs_by_depth(topology->hwloc, depth);

	return count > 0 ? (uint32_t) count : 0;
}

/* The one node that an object is near; -1 if it is near several. Nodes with
 * the same CPUs (DRAM beside HBM) count as one. */
static int32_t object_node(const struct fab_topology *topology, hwloc_obj_t obj)
{
	hwloc_obj_t node = NULL, first = NULL;

	while ((node = hwloc_get_next_obj_by_depth(
			topology->hwloc, HWLOC_TYPE_DEPTH_NUMANODE, node))) {
		if (node->os_index > INT32_MAX ||
		    !hwloc_bitmap_isset(obj->nodeset, node->os_index))
			continue;
		if (!first)
			first = node;
		else if (!hwloc_bitmap_isequal(first->cpuset, node->cpuset))
			return -1;
	}
	return first ? (int32_t) first->os_index : -1;
}

/* How many of an object's CPUs the process may use, and the first; -1: none. */
static int object_cpus(const struct fab_topology *topology, hwloc_obj_t obj,
		       uint32_t *count, int *first)
{
	hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
	int weight;

	if (!cpus || hwloc_bitmap_and(cpus, obj->cpuset, topology->usable)) {
		hwloc_bitmap_free(cpus);
		return -FI_ENOMEM;
	}
	weight = hwloc_bitmap_weight(cpus);
	*count = weight > 0 ? (uint32_t) weight : 0;
	*first = hwloc_bitmap_first(cpus);
	hwloc_bitmap_free(cpus);
	return 0;
}

int fab_topology_nodes(struct fab_topology *topology,
		       struct fab_numa_node *rows, uint32_t capacity,
		       uint32_t *count)
{
	uint32_t found = level_count(topology, HWLOC_TYPE_DEPTH_NUMANODE);
	int first, ret;

	for (uint32_t i = 0; i < found && i < capacity; i++) {
		hwloc_obj_t obj = hwloc_get_obj_by_depth(
			topology->hwloc, HWLOC_TYPE_DEPTH_NUMANODE, i);

		rows[i].node = obj->os_index;
		rows[i].memory_bytes = obj->attr->numanode.local_memory;
		ret = object_cpus(topology, obj, &rows[i].cpu_count, &first);
		if (ret)
			return ret;
	}
	*count = found;
	return 0;
}

int fab_topology_cores(struct fab_topology *topology, struct fab_core *rows,
		       uint32_t capacity, uint32_t *count)
{
	int depth = hwloc_get_type_depth(topology->hwloc, HWLOC_OBJ_CORE);
	uint32_t found = 0, total, cpus;
	int first, ret;

	/* Some virtual machines have no cores, only CPUs. */
	if (depth < 0)
		depth = hwloc_get_type_depth(topology->hwloc, HWLOC_OBJ_PU);
	total = level_count(topology, depth);
	for (uint32_t i = 0; i < total; i++) {
		hwloc_obj_t obj =
			hwloc_get_obj_by_depth(topology->hwloc, depth, i);

		ret = object_cpus(topology, obj, &cpus, &first);
		if (ret)
			return ret;
		if (cpus == 0)
			continue;
		if (found < capacity) {
			rows[found].cpu = (uint32_t) first;
			rows[found].node = object_node(topology, obj);
		}
		found++;
	}
	*count = found;
	return 0;
}

static void pci_describe(const struct fab_topology *topology, hwloc_obj_t obj,
			 struct fab_pci *row)
{
	const struct hwloc_pcidev_attr_s *pci = NULL;

	memset(row, 0, sizeof(*row));
	row->node = object_node(
		topology, hwloc_get_non_io_ancestor_obj(topology->hwloc, obj));
	row->parent = obj->parent->type == HWLOC_OBJ_BRIDGE &&
				      obj->parent->logical_index < INT32_MAX ?
			      (int32_t) obj->parent->logical_index :
			      -1;
	if (obj->type == HWLOC_OBJ_PCI_DEVICE) {
		row->kind = FAB_PCI_DEVICE;
		pci = &obj->attr->pcidev;
	} else if (obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
		row->kind = FAB_PCI_BRIDGE;
		pci = &obj->attr->bridge.upstream.pci;
	} else {
		row->kind = FAB_PCI_HOST_BRIDGE;
		return;
	}
	row->domain = pci->domain;
	row->bus = pci->bus;
	row->device = pci->dev;
	row->function = pci->func;
	row->class_id = pci->class_id;
	row->vendor_id = pci->vendor_id;
	row->device_id = pci->device_id;
	/* In GB/s; an XML file may say anything. */
	if (pci->linkspeed > 0.0f && pci->linkspeed < 1e9f)
		row->link_bytes_per_s =
			(uint64_t) ((double) pci->linkspeed * 1e9);
}

int fab_topology_pcis(struct fab_topology *topology, struct fab_pci *rows,
		      uint32_t capacity, uint32_t *count)
{
	static const int depths[] = {HWLOC_TYPE_DEPTH_BRIDGE,
				     HWLOC_TYPE_DEPTH_PCI_DEVICE};
	uint32_t found = 0;

	for (size_t level = 0; level < 2; level++) {
		uint32_t total = level_count(topology, depths[level]);

		for (uint32_t i = 0; i < total; i++, found++) {
			if (found < capacity)
				pci_describe(topology,
					     hwloc_get_obj_by_depth(
						     topology->hwloc,
						     depths[level], i),
					     &rows[found]);
		}
	}
	*count = found;
	return 0;
}

int fab_topology_note_add(struct fab_topology *topology, const char *note)
{
	return hwloc_obj_add_info(hwloc_get_root_obj(topology->hwloc),
				  NOTE_NAME, note) ?
		       -FI_ENOMEM :
		       0;
}

const char *fab_topology_note(const struct fab_topology *topology,
			      uint32_t index)
{
	hwloc_obj_t root = hwloc_get_root_obj(topology->hwloc);

	for (unsigned int i = 0; i < root->infos_count; i++) {
		if (!strcmp(root->infos[i].name, NOTE_NAME) && index-- == 0)
			return root->infos[i].value;
	}
	return NULL;
}

int fab_topology_xml(struct fab_topology *topology, const char **xml,
		     uint64_t *bytes, struct fab_error *error)
{
	int length;

	if (topology->xml)
		hwloc_free_xmlbuffer(topology->hwloc, topology->xml);
	topology->xml = NULL;
	errno = 0;
	if (hwloc_topology_export_xmlbuffer(topology->hwloc, &topology->xml,
					    &length, 0)) {
		topology->xml = NULL;
		return fab_error_set(error, topology_errno(),
				     "hwloc_topology_export_xmlbuffer", 0,
				     NULL);
	}
	*xml = topology->xml;
	*bytes = (uint64_t) length - 1;
	return 0;
}

int32_t fab_memory_node(uint64_t address)
{
	int node = -1;

	if (syscall(SYS_get_mempolicy, &node, NULL, 0ul, (void *) address,
		    (unsigned long) (MPOL_F_NODE | MPOL_F_ADDR)))
		return -1;
	return node;
}
