// SPDX-License-Identifier: GPL-2.0
/*
 * Module parameters, and the table of HCAs that the switch uses to forward.
 *
 * An entry of the table is visible from before the registration of its HCA
 * until before its removal.  Readers hold rcu_read_lock().
 */
#include <linux/if_link.h>
#include <linux/module.h>
#include <linux/rcupdate.h>

#include "softib.h"

static unsigned int devices = 1;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "number of single-port HCAs, 1 to 16");

static unsigned int functions;
module_param(functions, uint, 0444);
MODULE_PARM_DESC(functions,
		 "so many of the last HCAs are virtual functions of softib0 (default: 0)");

static char *pkeys = "0xffff";
module_param(pkeys, charp, 0444);
MODULE_PARM_DESC(pkeys,
		 "P_Key table, e.g. 0xffff,0x8001; one per HCA separated by '/', the last one for all that follow");

static unsigned long guid_base = 0x525400fffe000001UL;
module_param(guid_base, ulong, 0444);
MODULE_PARM_DESC(guid_base, "GUID of softib0 and its port; each next HCA has the next one");

static unsigned int rate = 200;
module_param(rate, uint, 0444);
MODULE_PARM_DESC(rate, "link rate in Gb/s: 10, 20, 40, 56, 100, 200 or 400");

static unsigned int mtu = 4096;
module_param(mtu, uint, 0444);
MODULE_PARM_DESC(mtu, "active MTU of the ports: 2048 or 4096");

static unsigned int group_mtu;
module_param(group_mtu, uint, 0444);
MODULE_PARM_DESC(group_mtu, "MTU of the IPoIB broadcast groups: 2048 or 4096 (default: mtu)");

static unsigned int unplugged[SOFTIB_MAX_HCAS];
static unsigned int unplugged_count;
module_param_array_named(down, unplugged, uint, &unplugged_count, 0444);
MODULE_PARM_DESC(down, "HCAs whose cable is out at the start, e.g. 0,2");

static char *accelerated = "";
module_param(accelerated, charp, 0444);
MODULE_PARM_DESC(accelerated,
		 "HCAs with a data path of their own for IPoIB, as mlx5 has: a list, e.g. 0,2, or 'all'");

static unsigned int rx_queues;
module_param(rx_queues, uint, 0444);
MODULE_PARM_DESC(rx_queues, "RX queues of an accelerated HCA's IPoIB netdev, 1 to 256 (default: processors)");

/* A shorter delay also holds for the queries that wait already. */
static int sa_delay_set(const char *value, const struct kernel_param *param)
{
	int ret = param_set_uint(value, param);

	if (!ret)
		softib_for_each(softib_sa_wake);
	return ret;
}

static const struct kernel_param_ops sa_delay_ops = {
	.set = sa_delay_set,
	.get = param_get_uint,
};

unsigned int softib_sa_delay;
module_param_cb(sa_delay, &sa_delay_ops, &softib_sa_delay, 0644);
__MODULE_PARM_TYPE(sa_delay, "uint");
MODULE_PARM_DESC(sa_delay, "ms until the subnet administrator processes a query");

struct workqueue_struct *softib_wq;
static DECLARE_BITMAP(accelerated_units, SOFTIB_MAX_HCAS);
enum ib_mtu softib_port_mtu;
enum ib_mtu softib_group_mtu;

static struct platform_device *pdevs[SOFTIB_MAX_HCAS];
static struct softib_guids guids_of[SOFTIB_MAX_HCAS];	/* from the next bind on */
static DECLARE_BITMAP(kept_down, SOFTIB_MAX_HCAS);	/* ports, by softib0 */
static struct softib_hca __rcu *hcas[SOFTIB_MAX_HCAS];
static DEFINE_MUTEX(hcas_lock);	/* an HCA that is in the table stays there */

/* The callers of these three functions hold rcu_read_lock() or hcas_lock. */
struct softib_hca *softib_by_unit(unsigned int unit)
{
	return rcu_dereference_check(hcas[unit], 1);
}

struct softib_hca *softib_by_lid(u16 lid)
{
	unsigned int i;

	for (i = 0; i < SOFTIB_MAX_HCAS; i++) {
		struct softib_hca *hca = softib_by_unit(i);

		if (hca && READ_ONCE(hca->lid) == lid)
			return hca;
	}
	return NULL;
}

struct softib_hca *softib_by_gid(const union ib_gid *gid)
{
	unsigned int i;

	for (i = 0; i < SOFTIB_MAX_HCAS; i++) {
		struct softib_hca *hca = softib_by_unit(i);

		if (hca && hca->guid == gid->global.interface_id &&
		    hca->ibport.gid_prefix == gid->global.subnet_prefix)
			return hca;
	}
	return NULL;
}

/* Calls @fn for each HCA.  No HCA is removed meanwhile. */
void softib_for_each(void (*fn)(struct softib_hca *hca))
{
	struct softib_hca *hca;
	unsigned int i;

	mutex_lock(&hcas_lock);
	for (i = 0; i < SOFTIB_MAX_HCAS; i++) {
		hca = softib_by_unit(i);
		if (hca)
			fn(hca);
	}
	mutex_unlock(&hcas_lock);
}

static void table_set(unsigned int unit, struct softib_hca *hca)
{
	mutex_lock(&hcas_lock);
	rcu_assign_pointer(hcas[unit], hca);
	mutex_unlock(&hcas_lock);
	if (!hca)
		synchronize_rcu();
}

static int mtu_parse(const char *name, unsigned int value, enum ib_mtu *out)
{
	if (value != 2048 && value != 4096) {
		pr_err("softib: %s=%u is neither 2048 nor 4096\n", name, value);
		return -EINVAL;
	}
	*out = ib_mtu_int_to_enum(value);
	return 0;
}

/*
 * Sets @table for HCA @unit from the parameter pkeys: part @unit, or the last.
 */
static int pkeys_of(unsigned int unit, u16 *table)
{
	const char *part = pkeys, *end;
	int ret;

	for (;;) {
		end = strchrnul(part, '/');
		if (!*end || !unit--)
			break;
		part = end + 1;
	}
	ret = softib_pkeys_parse(part, end - part, table);
	if (ret)
		pr_err("softib: pkeys=%s: '%.*s' is not a list of at most %d P_Keys\n",
		       pkeys, (int)(end - part), part, SOFTIB_PKEYS);
	return ret;
}

static enum ib_port_state first_state(unsigned int unit)
{
	unsigned int i;

	if (test_bit(unit, kept_down))
		return IB_PORT_DOWN;
	for (i = 0; i < unplugged_count; i++)
		if (unplugged[i] == unit)
			return IB_PORT_DOWN;
	return IB_PORT_ACTIVE;
}

/* Parses the parameter accelerated. */
static int accelerated_parse(void)
{
	int ret = 0;

	if (sysfs_streq(accelerated, "all"))
		bitmap_fill(accelerated_units, devices);
	else
		ret = bitmap_parselist(accelerated, accelerated_units, devices);
	if (ret)
		pr_err("softib: accelerated=%s is neither 'all' nor a list of HCAs 0 to %u\n",
		       accelerated, devices - 1);
	return ret;
}

static int queues_check(void)
{
	if (!rx_queues)
		rx_queues = min(num_online_cpus(), SOFTIB_MAX_QUEUES + 0U);
	if (rx_queues <= SOFTIB_MAX_QUEUES)
		return 0;
	pr_err("softib: rx_queues=%u is not in 1..%d\n", rx_queues,
	       SOFTIB_MAX_QUEUES);
	return -EINVAL;
}

static int mtus_check(void)
{
	int ret = mtu_parse("mtu", mtu, &softib_port_mtu);

	if (ret)
		return ret;
	ret = mtu_parse("group_mtu", group_mtu ?: mtu, &softib_group_mtu);
	if (!ret && softib_group_mtu > softib_port_mtu) {
		pr_err("softib: group_mtu=%u is above mtu=%u\n", group_mtu,
		       mtu);
		ret = -EINVAL;
	}
	return ret;
}

static int parameters_check(void)
{
	unsigned int i;

	if (!devices || devices > SOFTIB_MAX_HCAS) {
		pr_err("softib: devices=%u is not in 1..%d\n", devices,
		       SOFTIB_MAX_HCAS);
		return -EINVAL;
	}
	if (functions >= devices) {
		pr_err("softib: functions=%u is not below devices=%u\n",
		       functions, devices);
		return -EINVAL;
	}
	if (!softib_rate_find(rate)) {
		pr_err("softib: rate=%u Gb/s is not a rate of a 4X link\n",
		       rate);
		return -EINVAL;
	}
	for (i = 0; i < unplugged_count; i++) {
		if (unplugged[i] >= devices) {
			pr_err("softib: down=%u: there are only %u HCAs\n",
			       unplugged[i], devices);
			return -EINVAL;
		}
	}
	return accelerated_parse() ?: queues_check() ?: mtus_check();
}

static bool is_function(unsigned int unit)
{
	return unit >= devices - functions;
}

/*
 * Sets a GUID of a virtual function, as the driver of mlx5's physical function
 * does: the function uses it when its driver is bound the next time.  The
 * firmware refuses 0 for a port.
 */
int softib_function_set(const struct softib_hca *of, int function, u64 guid,
			int type)
{
	struct softib_guids *guids;

	if (of->unit || function < 0 || function >= functions)
		return -EINVAL;
	guids = &guids_of[devices - functions + function];
	switch (type) {
	case IFLA_VF_IB_NODE_GUID:
		guids->node = cpu_to_be64(guid);
		return 0;
	case IFLA_VF_IB_PORT_GUID:
		if (!guid)
			return -EINVAL;
		guids->port = cpu_to_be64(guid);
		return 0;
	default:
		return -EINVAL;
	}
}

/*
 * Sets the link state of a virtual function.  As with mlx5, its port is down
 * until then, and the state outlasts a driver that is bound again.
 */
int softib_function_state(const struct softib_hca *of, int function, int state)
{
	struct softib_hca *hca;
	unsigned int unit;

	if (of->unit || function < 0 || function >= functions)
		return -EINVAL;
	unit = devices - functions + function;
	mutex_lock(&hcas_lock);
	if (state == IFLA_VF_LINK_STATE_DISABLE)
		set_bit(unit, kept_down);
	else
		clear_bit(unit, kept_down);
	hca = softib_by_unit(unit);
	if (hca)
		softib_port_set(hca, first_state(unit));
	mutex_unlock(&hcas_lock);
	return 0;
}

static struct softib_hca *hca_create(struct platform_device *pdev)
{
	unsigned int unit = pdev->id;
	u16 table[SOFTIB_PKEYS];
	int ret;

	ret = pkeys_of(unit, table);
	if (ret)
		return ERR_PTR(ret);
	return softib_hca_create(pdev, &guids_of[unit], table,
				 softib_rate_find(rate), first_state(unit));
}

static int softib_probe(struct platform_device *pdev)
{
	struct softib_hca *hca = hca_create(pdev);
	unsigned int unit = pdev->id;
	int ret;

	if (IS_ERR(hca))
		return PTR_ERR(hca);
	softib_accel_init(hca, test_bit(unit, accelerated_units), rx_queues);
	platform_set_drvdata(pdev, hca);
	table_set(unit, hca);
	ret = softib_hca_register(hca);
	if (!ret) {
		ret = sysfs_create_group(&pdev->dev.kobj, &softib_port_group);
		if (ret)
			softib_hca_unregister(hca);
	}
	if (ret) {
		pr_err("softib: softib%u cannot be registered: %pe\n", unit,
		       ERR_PTR(ret));
		table_set(unit, NULL);
		softib_sa_stop(hca);
		softib_hca_free(hca);
	}
	return ret;
}

static void hca_remove(struct platform_device *pdev)
{
	struct softib_hca *hca = platform_get_drvdata(pdev);

	sysfs_remove_group(&pdev->dev.kobj, &softib_port_group);
	/*
	 * The switch must lose the HCA first: rdmavt frees the table of queue
	 * pairs while it unregisters, and packets of other HCAs must not use it.
	 * The SA still answers this HCA, so that clients leave their groups.
	 */
	table_set(hca->unit, NULL);
	softib_hca_unregister(hca);
	softib_sa_stop(hca);
	softib_groups_drop_port(hca);
	softib_hca_free(hca);
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
static int softib_remove(struct platform_device *pdev)
{
	hca_remove(pdev);
	return 0;
}
#else
static void softib_remove(struct platform_device *pdev)
{
	hca_remove(pdev);
}
#endif

/* A virtual function can be unbound and bound in sysfs, and so can any HCA. */
static struct platform_driver softib_driver = {
	.probe = softib_probe,
	.remove = softib_remove,
	.driver = {
		.name = "softib",
		.probe_type = PROBE_FORCE_SYNCHRONOUS,
	},
};

static int hca_add(unsigned int unit)
{
	struct platform_device *pdev;

	guids_of[unit] = (struct softib_guids) {
		.node = cpu_to_be64(guid_base + unit),
		.port = cpu_to_be64(guid_base + unit),
	};
	if (is_function(unit))
		set_bit(unit, kept_down);
	pdev = platform_device_register_simple("softib", unit, NULL, 0);
	if (IS_ERR(pdev))
		return PTR_ERR(pdev);
	pdevs[unit] = pdev;
	/* softib_probe() has printed its error. */
	return platform_get_drvdata(pdev) ? 0 : -EIO;
}

/* The links between the functions in sysfs, as PCI has them. */
static int function_link(unsigned int unit)
{
	struct kobject *physical = &pdevs[0]->dev.kobj;
	struct kobject *function = &pdevs[unit]->dev.kobj;
	char name[16];
	int ret;

	if (!is_function(unit))
		return 0;
	snprintf(name, sizeof(name), "virtfn%u", unit - (devices - functions));
	ret = sysfs_create_link(function, physical, "physfn");
	return ret ?: sysfs_create_link(physical, function, name);
}

static void hcas_remove(void)
{
	unsigned int i;

	for (i = 0; i < SOFTIB_MAX_HCAS; i++)
		platform_device_unregister(pdevs[i]);
	platform_driver_unregister(&softib_driver);
}

static int hcas_add(void)
{
	unsigned int i;
	int ret;

	ret = platform_driver_register(&softib_driver);
	if (ret)
		return ret;
	for (i = 0; i < devices && !ret; i++)
		ret = hca_add(i) ?: function_link(i);
	if (ret)
		hcas_remove();
	return ret;
}

static int __init softib_init(void)
{
	int ret;

	ret = parameters_check();
	if (ret)
		return ret;
	softib_wq = alloc_workqueue("softib", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!softib_wq)
		return -ENOMEM;
	ret = softib_groups_init();
	if (ret)
		goto out_wq;
	ret = hcas_add();
	if (!ret)
		return 0;
	softib_groups_exit();
out_wq:
	destroy_workqueue(softib_wq);
	return ret;
}

static void __exit softib_exit(void)
{
	hcas_remove();
	softib_groups_exit();
	destroy_workqueue(softib_wq);
}

module_init(softib_init);
module_exit(softib_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Software InfiniBand fabric for tests");
