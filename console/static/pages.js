// The pages, in the order of the menu. One with `menu` belongs to another one's entry.

import { group, groups, spark } from "./groups.js";
import { messages } from "./messages.js";
import { overview } from "./overview.js";
import { logDirs, mirrors, reassignments } from "./placement.js";
import { acls, quotas, users } from "./security.js";
import { topic, topics } from "./topics.js";
import { transactions } from "./transactions.js";

export const PAGES = [
  { name: "overview", title: "Overview", show: overview },
  { name: "topics", title: "Topics", show: topics },
  { name: "topic", title: "Topic", menu: "topics", show: topic },
  { name: "messages", title: "Messages", show: messages },
  { name: "groups", title: "Groups", show: groups },
  { name: "group", title: "Group", menu: "groups", show: group },
  { name: "transactions", title: "Transactions", show: transactions },
  { name: "acls", title: "Access control", show: acls },
  { name: "users", title: "Users", show: users },
  { name: "quotas", title: "Quotas", show: quotas },
  { name: "reassignments", title: "Reassignments", show: reassignments },
  { name: "log-dirs", title: "Log directories", show: logDirs },
  { name: "mirrors", title: "Mirrors", show: mirrors },
  { name: "spark", title: "Spark queries", show: spark },
  { name: "query", title: "Spark query", menu: "spark", show: group },
];
