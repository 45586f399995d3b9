/* cdef/topology.h over XML texts, good and bad, and over this machine. */
#include "check.h"
#include "fabricio.h"

#include <rdma/fi_errno.h>
#include <sched.h>
#include <string.h>

#define ROWS 64u

#define HEAD                                           \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" \
	"<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"  \
	"<topology version=\"2.0\">\n"
#define MACHINE(cpus, nodes)                                     \
	"<object type=\"Machine\" os_index=\"0\" cpuset=\"" cpus \
	"\" complete_cpuset=\"" cpus "\" allowed_cpuset=\"" cpus \
	"\" nodeset=\"" nodes "\" complete_nodeset=\"" nodes     \
	"\" allowed_nodeset=\"" nodes "\">\n"
#define SETS(cpus, nodes)                                                    \
	" cpuset=\"" cpus "\" complete_cpuset=\"" cpus "\" nodeset=\"" nodes \
	"\" complete_nodeset=\"" nodes "\""
#define NODE(number, cpus, nodes, memory)              \
	"<object type=\"NUMANode\" os_index=\"" number \
	"\"" SETS(cpus, nodes) " local_memory=\"" memory "\"/>\n"
#define PU(number, cpus, nodes) \
	"<object type=\"PU\" os_index=\"" number "\"" SETS(cpus, nodes) "/>\n"
#define TAIL "</object>\n</topology>\n"

/* Two packages of one core with two CPUs each; node 1 has no memory. A switch
 * with a GPU and a NIC at package 1, a device at the machine itself. */
static const char machine[] = HEAD
	MACHINE("0xf", "0x3") "<object type=\"Package\" os_index=\"0\"" SETS(
		"0x5", "0x1") ">\n" NODE("0",
					 "0x5", "0x1", "18446744073709551615") "<object type=\"Core\" os_index=\"0\"" SETS("0x5",
															   "0x1") ">\n" PU("0",
																	   "0x1",
																	   "0x1")
		PU("2", "0x4",
		   "0x1") "</object></object>\n"
			  "<object type=\"Package\" os_index=\"1\"" SETS("0xa", "0x2") ">\n" NODE(
				  "1", "0xa", "0x2",
				  "0") "<object type=\"Core\" "
				       "os_index=\"1\"" SETS(
					       "0xa", "0x2") ">\n" PU("1",
								      "0"
								      "x"
								      "2",
								      "0"
								      "x"
								      "2")
					       PU("3", "0x8",
						  "0x2") "</object>\n"
							 "<object "
							 "type=\"Bridge\" "
							 "bridge_type=\"0-1\" "
							 "depth=\"0\" "
							 "bridge_pci=\"0000:["
							 "44-46]\">\n"
							 "<object "
							 "type=\"Bridge\" "
							 "bridge_type=\"1-1\" "
							 "depth=\"1\" "
							 "bridge_pci=\"0000:["
							 "45-46]\" "
							 "pci_busid=\"0000:44:"
							 "00.0\" "
							 "pci_type=\"0604 "
							 "[1d0f:0200] "
							 "[0000:0000] 00\" "
							 "pci_link_speed=\"0."
							 "000000\">\n"
							 "<object "
							 "type=\"PCIDev\" "
							 "pci_busid=\"0000:45:"
							 "00.0\" "
							 "pci_type=\"0302 "
							 "[10de:2330] "
							 "[0000:0000] a1\" "
							 "pci_link_speed=\"63."
							 "015385\"/>\n"
							 "<object "
							 "type=\"PCIDev\" "
							 "pci_busid=\"0000:46:"
							 "1f.7\" "
							 "pci_type=\"0200 "
							 "[1d0f:efa1] "
							 "[0000:0000] 00\" "
							 "pci_link_speed="
							 "\"1e30\"/>\n"
							 "</object></object></"
							 "object>\n"
							 "<object "
							 "type=\"Bridge\" "
							 "bridge_type=\"0-1\" "
							 "depth=\"0\" "
							 "bridge_pci=\"0000:["
							 "00-00]\">\n"
							 "<object "
							 "type=\"PCIDev\" "
							 "pci_busid=\"0000:00:"
							 "03.0\" "
							 "pci_type=\"0300 "
							 "[1d0f:1111] "
							 "[0000:0000] 00\" "
							 "pci_link_speed=\"0."
							 "000000\"/>\n"
							 "</object>\n" TAIL;

static struct fab_topology *open_xml(const char *xml)
{
	struct fab_topology *topology;
	struct fab_error error;

	CHECK(!fab_topology_open(xml, xml ? strlen(xml) : 0, &topology,
				 &error));
	return topology;
}

static void test_records(void)
{
	struct fab_topology *topology = open_xml(machine);
	struct fab_numa_node nodes[ROWS];
	struct fab_core cores[ROWS];
	struct fab_pci pcis[ROWS];
	uint32_t count;

	CHECK(!fab_topology_is_local(topology));
	CHECK(!fab_topology_nodes(topology, nodes, ROWS, &count));
	CHECK(count == 2);
	CHECK(nodes[0].node == 0 && nodes[0].cpu_count == 2);
	CHECK(nodes[0].memory_bytes == UINT64_MAX);
	CHECK(nodes[1].node == 1 && nodes[1].memory_bytes == 0);

	CHECK(!fab_topology_cores(topology, cores, ROWS, &count));
	CHECK(count == 2);
	CHECK(cores[0].cpu == 0 && cores[0].node == 0);
	CHECK(cores[1].cpu == 1 && cores[1].node == 1);

	CHECK(!fab_topology_pcis(topology, pcis, ROWS, &count));
	CHECK(count == 6);
	for (uint32_t i = 0; i < count; i++) {
		const struct fab_pci *pci = &pcis[i];

		CHECK((pci->kind == FAB_PCI_DEVICE) == (i >= 3));
		CHECK(pci->parent < 3);
		if (pci->kind == FAB_PCI_HOST_BRIDGE)
			CHECK(pci->parent == -1);
		else
			CHECK(pci->parent >= 0);
		if (pci->bus == 0x45) {
			CHECK(pci->class_id == 0x0302 && pci->node == 1);
			CHECK(pci->vendor_id == 0x10de);
			CHECK(pci->device_id == 0x2330);
			CHECK(pci->link_bytes_per_s / 1000000000 == 63);
			CHECK(pcis[pci->parent].bus == 0x44);
			CHECK(pcis[pci->parent].kind == FAB_PCI_BRIDGE);
		} else if (pci->bus == 0x46) {
			CHECK(pci->device == 0x1f && pci->function == 7);
			CHECK(pci->link_bytes_per_s == 0);
		} else if (pci->kind == FAB_PCI_DEVICE) {
			CHECK(pci->node == -1);
		}
	}
	fab_topology_close(topology);
}

/* No more rows are written than there is room for. */
static void test_capacity(void)
{
	struct fab_topology *topology = open_xml(machine);
	uint32_t count;

	CHECK(!fab_topology_nodes(topology, NULL, 0, &count) && count == 2);
	CHECK(!fab_topology_cores(topology, NULL, 0, &count) && count == 2);
	CHECK(!fab_topology_pcis(topology, NULL, 0, &count) && count == 6);
	fab_topology_close(topology);
}

/* Notes and tree survive a way through XML, quotes and all. */
static void test_export(void)
{
	static const char note[] = "{\"nic\": \"a<b>&'\"}";
	struct fab_topology *topology = open_xml(machine), *again;
	struct fab_error error;
	const char *xml;
	uint64_t bytes;
	uint32_t count;

	CHECK(!fab_topology_note(topology, 0));
	CHECK(!fab_topology_note_add(topology, note));
	CHECK(!fab_topology_note_add(topology, "two"));
	CHECK(!fab_topology_xml(topology, &xml, &bytes, &error));
	CHECK(!fab_topology_xml(topology, &xml, &bytes, &error));
	CHECK(strlen(xml) == bytes);
	CHECK(!fab_topology_open(xml, bytes, &again, &error));
	fab_topology_close(topology);
	CHECK(!strcmp(fab_topology_note(again, 0), note));
	CHECK(!strcmp(fab_topology_note(again, 1), "two"));
	CHECK(!fab_topology_note(again, 2));
	CHECK(!fab_topology_pcis(again, NULL, 0, &count) && count == 6);
	fab_topology_close(again);
}

static void check_refused(const char *xml, size_t bytes)
{
	struct fab_topology *topology = NULL;
	struct fab_error error = {0};
	int ret = fab_topology_open(xml, bytes, &topology, &error);

	CHECK(ret < 0 && error.code == ret && error.call[0]);
	CHECK(!topology);
}

static void test_refused(void)
{
	check_refused("", 0);
	check_refused("nonsense", 8);
	check_refused("<topology>", 10);
	check_refused("\0<topology/>", 12);
	check_refused(HEAD "</topology>", sizeof(HEAD "</topology>") - 1);
	check_refused("x", UINT64_MAX);
}

/* The cores of this machine are those that this thread may run on. */
static void test_this_machine(void)
{
	struct fab_topology *topology;
	struct fab_core cores[ROWS];
	cpu_set_t before, one;
	uint32_t count;
	size_t cpu = 0;

	CHECK(!sched_getaffinity(0, sizeof(before), &before));
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	topology = open_xml(NULL);
	CHECK(fab_topology_is_local(topology));
	CHECK(!fab_topology_cores(topology, cores, ROWS, &count) && count > 0);
	for (uint32_t i = 0; i < count && i < ROWS; i++)
		CHECK(CPU_ISSET(cores[i].cpu, &before));
	fab_topology_close(topology);

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK(!sched_setaffinity(0, sizeof(one), &one));
	topology = open_xml(NULL);
	CHECK(!fab_topology_cores(topology, cores, ROWS, &count) && count == 1);
	CHECK(cores[0].cpu == (uint32_t) cpu);
	fab_topology_close(topology);
	CHECK(!sched_setaffinity(0, sizeof(before), &before));
}

static void test_nics(void)
{
	struct fab_nic rows[ROWS];
	uint32_t count, again;

	CHECK(!fab_nic_list("no such provider", rows, ROWS, &count));
	CHECK(count == 0);
	CHECK(!fab_nic_list("tcp", rows, ROWS, &count));
	for (uint32_t i = 0; i < count && i < ROWS; i++)
		CHECK(rows[i].domain[0] && rows[i].source[0] &&
		      !strcmp(rows[i].provider, "tcp"));
	CHECK(!fab_nic_list("tcp", NULL, 0, &again) && again == count);
}

int main(void)
{
	test_records();
	test_capacity();
	test_export();
	test_refused();
	test_this_machine();
	test_nics();
	return 0;
}
