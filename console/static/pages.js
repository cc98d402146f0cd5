// The pages, in the order of the menu. One with `menu` belongs to another one's entry.

import { messages } from "./messages.js";
import { overview } from "./overview.js";
import { topic, topics } from "./topics.js";

export const PAGES = [
  { name: "overview", title: "Overview", show: overview },
  { name: "topics", title: "Topics", show: topics },
  { name: "topic", title: "Topic", menu: "topics", show: topic },
  { name: "messages", title: "Messages", show: messages },
];
