import java.util.ArrayList;
import java.util.List;

/** Runs Kafka's DumpLogSegments once per group of arguments ("--next" between them), in one JVM. */
public class DumpAll {
    public static void main(String[] arguments) throws Exception {
        System.setErr(System.out); // where the tool tells of mismatches
        List<String> group = new ArrayList<>();
        for (String argument : arguments) {
            if (argument.equals("--next")) {
                run(group);
                group.clear();
            } else {
                group.add(argument);
            }
        }
        run(group);
    }

    private static void run(List<String> group) throws Exception {
        System.out.println("### " + String.join(" ", group));
        org.apache.kafka.tools.DumpLogSegments.main(group.toArray(new String[0]));
        System.out.println("### end");
    }
}
